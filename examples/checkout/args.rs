//! The command line.

use std::ffi::OsString;
use std::num::ParseIntError;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, ValueEnum};

const ABOUT: &str = "\
A shop whose checkout survives double clicks, reloads and a client that repeats its requests: a page
with a form and its one-time token, a JSON API with the Idempotency-Key header, and a live page of
executed and replayed calls.

The books (orders, charges) and the records of idem survive the process, unless stated otherwise.";

const AFTER: &str = "\
Exit code: 0 after SIGTERM or Ctrl-C, 1 if calls were still running then, 2 if it cannot start.";

/// The command line.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(args_override_self = true,
    name = "checkout",
    bin_name = "cargo run --example checkout --",
    about = ABOUT,
    after_help = AFTER
)]
pub struct Args {
    /// The SQLite file of books and records [default: idem-checkout.db beside the program]
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// Records in Redis, books in the SQLite file
    #[arg(long, value_name = "URL", conflicts_with = "store")]
    pub redis: Option<String>,
    /// sqlite (the default), or memory, where both end with the process
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub store: Option<Local>,
    /// Port on 127.0.0.1; 0 takes a free one and prints it
    #[arg(long, value_name = "N", default_value_t = 3000)]
    pub port: u16,
    /// Forget what was sold, and begin new books
    #[arg(long)]
    pub fresh: bool,
    /// Duration of a payment, in milliseconds
    #[arg(long, value_name = "MS", default_value = "50", value_parser = millis)]
    pub slow: Duration,
    /// How long a form can be submitted, 1 to 86400 seconds
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub life: Duration,
}

/// A place on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Local {
    /// In a file
    Sqlite,
    /// In this process: both end with it
    Memory,
}

/// Location of the records and the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store<'a> {
    /// Both in a file.
    Sqlite,
    /// Both in this process.
    Memory,
    /// The records in Redis, the books in a file.
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
        if args.store == Some(Local::Memory) && args.file.is_some() {
            let message = "--file is for books that survive the process";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, message));
        }
        Ok(args)
    }

    /// Location of the records and the books.
    #[must_use]
    pub fn store(&self) -> Store<'_> {
        match (&self.redis, self.store) {
            (Some(url), _) => Store::Redis(url),
            (_, Some(Local::Memory)) => Store::Memory,
            _ => Store::Sqlite,
        }
    }
}

fn millis(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_millis)
}

fn seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_secs)
}
