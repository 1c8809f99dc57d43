//! The command line.

use std::fmt;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};
use tokio::runtime::Runtime;

use super::driver::current_thread;
use super::order::Receipt;

/// The options of all load benchmarks.
#[derive(Clone, Debug, Parser)]
#[command(
    args_override_self = true,
    after_help = "Prefix `taskset -c 0` to keep client and server on one core."
)]
pub(crate) struct Options {
    /// One JSON line a row instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// These cases only [default: all]
    #[arg(long = "case", value_name = "A,B", value_delimiter = ',')]
    cases: Vec<String>,
    /// These implementations only, for a profiler; no ratio without `raw` [default: all]
    #[arg(long = "impl", value_name = "A,B", value_delimiter = ',')]
    pub(crate) impls: Vec<String>,
    /// These stores only (not `redis_load`) [default: all; `http_load`: memory]
    #[arg(long = "store", value_name = "A,B", value_delimiter = ',')]
    pub(crate) stores: Vec<String>,
    /// Calls at once
    #[arg(long, value_name = "1,64", value_delimiter = ',', value_parser = number::<usize>,
        default_values_t = [1, 16, 64, 256])]
    pub(crate) concurrency: Vec<usize>,
    /// Bytes of an answer
    #[arg(long = "size", value_name = "200,10240", value_delimiter = ',', value_parser = size,
        default_values_t = [200, 10_240])]
    pub(crate) sizes: Vec<usize>,
    /// One thread, as for the figures that are quoted, or several
    #[arg(long, default_value = "current", value_parser = ["current", "multi"])]
    runtime: String,
    /// Rounds whose medians are printed
    #[arg(long, value_name = "N", value_parser = number::<usize>, default_value = "7",
        default_value_if("quick", "true", "3"))]
    pub(crate) rounds: usize,
    /// How long one run of one case takes
    #[arg(long, value_name = "MS", value_parser = millis, default_value = "100",
        default_value_if("quick", "true", "30"))]
    pub(crate) slice: Duration,
    /// Calls per thread and run on the store in memory [default: 33000, 10000, fewer of larger answers]
    #[arg(long, value_name = "N", value_parser = number::<usize>)]
    pub(crate) calls: Option<usize>,
    /// 3 rounds of 30 ms, for a first look
    #[arg(long)]
    quick: bool,
    /// A server that runs already, instead of one of the benchmark's own. It is not flushed: remaining keys expire
    /// within two minutes
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// Another server than the system's redis-server: valkey, redis8 or redis62
    #[arg(long)]
    pub(crate) edition: Option<String>,
}

impl Options {
    /// From the command line; ends the program where that makes no sense.
    pub(crate) fn parse() -> Self {
        Self::parse_from(words())
    }

    /// Whether this case was asked for.
    pub(crate) fn wants(&self, case: &str) -> bool {
        is_in(&self.cases, case)
    }

    /// Whether this implementation was asked for.
    pub(crate) fn wants_impl(&self, made_by: &str) -> bool {
        is_in(&self.impls, made_by)
    }

    /// Whether this store was asked for.
    pub(crate) fn wants_store(&self, store: &str) -> bool {
        is_in(&self.stores, store)
    }

    /// The runtime that was asked for.
    pub(crate) fn runtime(&self) -> Runtime {
        if self.runtime == "multi" {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.enable_all().build().unwrap()
        } else {
            current_thread()
        }
    }
}

/// For people: how it is measured.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (runtime, rounds, slice) = (&self.runtime, self.rounds, self.slice);
        write!(
            f,
            "{runtime}-thread runtime, medians of {rounds} rounds of {slice:?}"
        )
    }
}

fn is_in(wanted: &[String], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)
}

/// The command line, without what cargo says to every benchmark.
pub(crate) fn words() -> impl Iterator<Item = String> {
    std::env::args().filter(|word| word != "--bench")
}

/// A number above 0; `1_000` is one too.
pub(crate) fn number<T: TryFrom<u64>>(text: &str) -> Result<T, &'static str> {
    let number = text
        .replace('_', "")
        .parse::<u64>()
        .ok()
        .filter(|number| *number > 0);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or("not a number above 0")
}

fn millis(text: &str) -> Result<Duration, &'static str> {
    number(text).map(Duration::from_millis)
}

/// Bytes of an answer: not fewer than one without text has.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let (bytes, least) = (number(text)?, Receipt::bare_bytes());
    if bytes < least {
        return Err(format!("an answer has {least} bytes at least"));
    }
    Ok(bytes)
}

/// Ends the program: this is for a person at a terminal.
pub(crate) fn refuse(why: &str) -> ! {
    Options::command()
        .error(ErrorKind::ValueValidation, why)
        .exit()
}
