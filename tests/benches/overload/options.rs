//! The command line.

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};

use super::stores::STORES;

/// What is measured, and for how long.
///
/// Each row has a server and a process of its own.
#[derive(Clone, Debug, Parser)]
#[command(args_override_self = true, name = "overload")]
struct Line {
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// This store only, or several, comma-separated [default: all]
    #[arg(long = "store", value_name = "NAME", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(STORES))]
    stores: Vec<String>,
    /// Multiples of the peak that are offered; 0 for none [default: 1,2,5,10]
    #[arg(long = "factor", value_name = "N", value_delimiter = ',')]
    factors: Option<Vec<u32>>,
    /// How long they are offered [default: 60]
    #[arg(long, value_name = "N", value_parser = above_zero())]
    seconds: Option<u32>,
    /// Callers without a reply at a time; further arrivals are not offered [default: 20000]
    #[arg(long, value_name = "N", value_parser = above_zero())]
    callers: Option<u32>,
    /// The same rows again with the server stopped for N seconds in the middle; 0 for none [default: 10]
    #[arg(long, value_name = "N")]
    stop: Option<u32>,
    /// One row of N callers at once; 0 for none [default: 10000]
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
    /// Maximum of acknowledged answers of a row that are read again, at random
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = above_zero())]
    audit: u32,
    /// Maximum of calls of a row, so that its records fit into memory
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = above_zero())]
    most: u32,
    /// Other defaults: 2 seconds, 2000 callers, factor 10, stopped for 1 second, a burst of 1000
    #[arg(long)]
    quick: bool,
}

/// The measurements, and how long they take.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) json: bool,
    /// Stores, all if empty.
    pub(crate) stores: Vec<String>,
    /// How long calls are offered in a row.
    pub(crate) seconds: u32,
    /// How long each concurrency of the closed loop runs that finds the peak.
    pub(crate) peak_millis: u32,
    /// Callers without a reply at a time.
    pub(crate) callers: u32,
    /// Multiples of the peak that are offered.
    pub(crate) factors: Vec<u32>,
    /// How long the server is stopped; 0 for no such rows.
    pub(crate) stop: u32,
    /// Callers of the row that calls all at once; 0 for no such row.
    pub(crate) burst: u32,
    /// Acknowledged answers that are read again in a row.
    pub(crate) audit: u32,
    /// Calls after which a row offers no more.
    pub(crate) most: u32,
}

impl Options {
    /// From the command line; ends the program where that makes no sense.
    pub(crate) fn parse() -> Self {
        // Cargo passes `--bench` to every benchmark.
        let line = Line::parse_from(std::env::args().filter(|word| word != "--bench"));
        let pick = |full, quick| if line.quick { quick } else { full };
        let factors = line.factors.as_deref();
        let factors = factors.unwrap_or(if line.quick { &[10] } else { &[1, 2, 5, 10] });
        let options = Self {
            json: line.json,
            stores: line.stores,
            seconds: line.seconds.unwrap_or(pick(60, 2)),
            peak_millis: pick(3_000, 300),
            callers: line.callers.unwrap_or(pick(20_000, 2_000)),
            factors: factors.iter().copied().filter(|n| *n > 0).collect(),
            stop: line.stop.unwrap_or(pick(10, 1)),
            burst: line.burst.unwrap_or(pick(10_000, 1_000)),
            audit: line.audit,
            most: line.most,
        };
        if options.stop >= options.seconds && !options.factors.is_empty() {
            let message =
                "`--stop` must be shorter than `--seconds`: calls are offered before and after";
            Line::command()
                .error(ErrorKind::ValueValidation, message)
                .exit();
        }
        options
    }

    pub(crate) fn wants(&self, store: &str) -> bool {
        self.stores.is_empty() || self.stores.iter().any(|wanted| wanted == store)
    }
}

fn above_zero() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}
