//! The command line.

use std::num::ParseIntError;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

const ABOUT: &str = "\
A shop whose checkout survives double clicks, reloads and a client that repeats its requests: a page
with a form and its one-time token, a JSON API with the Idempotency-Key header, and a live page of
executed and replayed calls.

The books (orders, charges) and the records of idem survive the process.";

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
    /// Port on 127.0.0.1; 0 takes a free one and prints it
    #[arg(long, value_name = "N", default_value_t = 3000)]
    pub port: u16,
    /// Forget all sales, and begin new books
    #[arg(long)]
    pub fresh: bool,
    /// Duration of a payment, in milliseconds
    #[arg(long, value_name = "MS", default_value = "50", value_parser = millis)]
    pub slow: Duration,
    /// A payment waits for Enter, before the card is charged and once more after it
    #[arg(long, conflicts_with = "slow")]
    pub by_hand: bool,
    /// How long a form can be submitted, 1 to 86400 seconds
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub life: Duration,
}

fn millis(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_millis)
}

fn seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_secs)
}
