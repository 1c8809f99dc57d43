//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, ValueEnum};

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
pub struct Args {
    /// The SQLite file of records and books [default: idem-payments.db beside the program]
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// Records in Redis; the books end with the process
    #[arg(long, value_name = "URL", conflicts_with_all = ["file", "store"])]
    pub redis: Option<String>,
    /// sqlite (the default), or memory, where records and books end with the process
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub store: Option<Local>,
    /// Forget the earlier run, and begin new books
    #[arg(long, conflicts_with = "redis")]
    pub fresh: bool,
    /// Call the same functions without the attribute, and count the damage
    #[arg(long, conflicts_with_all = ["redis", "file", "store", "fresh"])]
    pub without: bool,
    /// Another log [default: the one beside this example]
    #[arg(long, value_name = "FILE")]
    pub deliveries: Option<PathBuf>,
    /// Deliveries under way at a time, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub tasks: usize,
    /// Which steps fail
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub seed: u64,
}

/// A place on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Local {
    /// In a file
    Sqlite,
    /// In this process: both end with it
    Memory,
}

/// Location of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store<'a> {
    /// In a file, the books too.
    Sqlite(Option<&'a Path>),
    /// In this process, the books too.
    Memory,
    /// In Redis; the books in this process.
    Redis(&'a str),
}

impl Args {
    /// Reads the command line, the program's name first.
    ///
    /// # Errors
    ///
    /// A message for the caller of the program; the request for help, too.
    pub fn read<T>(line: impl IntoIterator<Item = T>) -> Result<Self, clap::Error>
    where
        T: Into<OsString> + Clone,
    {
        let args = Self::try_parse_from(line)?;
        let durable = args.file.is_some() || args.fresh;
        if args.store == Some(Local::Memory) && durable {
            let message = "--file and --fresh are for books that survive the process";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, message));
        }
        Ok(args)
    }

    /// Location of the records.
    #[must_use]
    pub fn store(&self) -> Store<'_> {
        match (&self.redis, self.store) {
            (Some(url), _) => Store::Redis(url),
            _ if self.without => Store::Memory,
            (_, Some(Local::Memory)) => Store::Memory,
            _ => Store::Sqlite(self.file.as_deref()),
        }
    }
}
