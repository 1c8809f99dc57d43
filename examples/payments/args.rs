//! The command line.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::RangedU64ValueParser;

const ABOUT: &str = "\
Runs a log of payment webhooks, with repeats and faults, through idempotent functions, and checks
that money moved once.

Records and books survive the process, unless stated otherwise: a second run replays everything,
and after a kill -9 half-way the next run continues.";

const AFTER: &str = "\
Exit code: 0 if the books agree with the log, 1 if they do not, 2 if the run cannot start.";

/// The command line.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(args_override_self = true,
    name = "payments",
    bin_name = "cargo run --example payments --",
    about = ABOUT,
    after_help = AFTER
)]
pub(crate) struct Args {
    /// The SQLite file of records and books [default: idem-payments.db beside the program]
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Records in Redis; the books end with the process
    #[arg(long, value_name = "URL", conflicts_with = "file")]
    pub(crate) redis: Option<String>,
    /// Forget the earlier run, and begin new books
    #[arg(long, conflicts_with = "redis")]
    pub(crate) fresh: bool,
    /// Call the same functions without the attribute, and count the damage
    #[arg(long, conflicts_with_all = ["redis", "file", "fresh"])]
    pub(crate) without: bool,
    /// Deliveries under way at a time, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub(crate) tasks: usize,
    /// Which steps fail
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) seed: u64,
}
