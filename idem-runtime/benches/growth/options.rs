//! The command line.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};

use super::child::Task;
use super::load::options::{Options, number, size, words};

/// More than the largest answer that is usual here.
pub(crate) const MAX_VALUE_BYTES: usize = 2 << 20;

/// The options of this benchmark.
#[derive(Parser)]
#[command(
    args_override_self = true,
    name = "growth",
    after_help = "Client and server share the machine. `taskset -c 0,1` says which cores of it."
)]
pub(crate) struct Growth {
    /// One JSON line a figure instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// These parts only [default: all]
    #[arg(long = "part", value_name = "A,B", value_delimiter = ',',
        value_parser = ["keys", "memory", "sizes", "waiters", "processes"])]
    parts: Vec<String>,
    /// Small numbers and 3 rounds, for a first look
    #[arg(long)]
    quick: bool,
    /// Records of the part `keys`, rising [default: 10000,1000000,10000000 (10 M take 6 GB)]
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = number::<u64>)]
    pub(crate) keys: Vec<u64>,
    /// Bytes of an answer of the part `sizes` [default: 100,1024,10240,102400,1048576]
    #[arg(long = "size", value_name = "N,M", value_delimiter = ',', value_parser = some_mib)]
    sizes: Vec<usize>,
    /// Rounds whose medians are printed [default: 7]
    #[arg(long, value_name = "N", value_parser = number::<usize>)]
    rounds: Option<usize>,
    /// Another server than the system's redis-server: valkey, redis8 or redis62
    #[arg(long)]
    edition: Option<String>,
    /// How to measure what the other load benchmarks measure as well.
    #[arg(skip = Options::of(std::iter::once("growth".to_owned())))]
    pub(crate) load: Options,
}

impl Growth {
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }

    /// One figure or the other, the second for a first look.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// What this process is.
pub(crate) enum Mode {
    Parent(Box<Growth>),
    /// One of those that `processes` starts.
    Child(Task),
}

/// From the command line; ends the program where that makes no sense.
pub(crate) fn parse() -> Mode {
    let mut arguments = words().skip(1).peekable();
    if arguments.next_if_eq("--child").is_some() {
        return Mode::Child(Task::of(arguments));
    }
    let mut growth = Growth::parse_from(words());
    if growth.keys.is_empty() {
        growth.keys = growth.pick(vec![10_000, 1_000_000, 10_000_000], vec![1_000, 20_000]);
    }
    if growth.sizes.is_empty() {
        growth.sizes = growth.pick(
            vec![100, 1_024, 10_240, 102_400, 1_048_576],
            vec![100, 10_240, 1_048_576],
        );
    }
    if !growth.keys.is_sorted() {
        let why = "`--keys` are to rise: each measurement adds to what is there";
        Growth::command()
            .error(ErrorKind::ValueValidation, why)
            .exit();
    }
    let (rounds, slice) = (growth.pick(7, 3), growth.pick(100, 30));
    let load = &mut growth.load;
    load.json = growth.json;
    load.edition.clone_from(&growth.edition);
    load.concurrency = vec![1, 64];
    load.sizes.clone_from(&growth.sizes);
    load.rounds = growth.rounds.unwrap_or(rounds);
    load.slice = Duration::from_millis(slice);
    Mode::Parent(Box::new(growth))
}

fn some_mib(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    if bytes > MAX_VALUE_BYTES {
        return Err(format!("more than {MAX_VALUE_BYTES} bytes"));
    }
    Ok(bytes)
}
