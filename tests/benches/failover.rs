//! The losses of a failover, by how the primary is lost, when a write counts, and which addresses the client
//! has.
//!
//! `cargo bench -p idem-tests --bench failover`, under three minutes once it is built;
//! `-- --only replicated` measures the rows in which that word is, `--seconds 2` goes on calling for so
//! long after the election. Each line of the table is a group of its own: a primary with two replicas,
//! and three sentinels that take a server for down after 1.5 s. 32 calls of each client are under way
//! at once, with fresh keys, trivial bodies and a lease of a minute. Then every key whose body ran is
//! called again by another engine, on the new primary. *Held* are keys whose claim is there, and their
//! answer is not: they count as running until their lease ends. *Served again* is the first answer
//! after the election, counted from the fault.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::fmt::Display;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::Parser;
use idem_harness::RedisServer;
use idem_tests::trial::{Fault, Mode, Trial};

/// The command line.
#[derive(Parser)]
#[command(args_override_self = true, name = "failover")]
struct Arguments {
    /// How long to go on calling after the election, in seconds
    #[arg(long = "seconds", value_name = "N", default_value = "1.5", value_parser = duration)]
    after: Duration,
    /// Only the rows that contain this text
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    only: String,
}

fn duration(seconds: &str) -> Result<Duration, String> {
    let seconds: f64 = seconds.parse().map_err(|_| "not a number")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl Arguments {
    fn want(&self, fault: Fault, mode: Mode) -> bool {
        format!("{fault} {mode}")
            .to_lowercase()
            .contains(&self.only.to_lowercase())
    }
}

fn main() {
    // Cargo passes `--bench` to every benchmark.
    let arguments = Arguments::parse_from(std::env::args().filter(|word| word != "--bench"));
    println!("{}\n", header());
    println!(
        "| fault | mode | client | executed | executed **again** | answers that differ | held | refused | \
         election | served again |"
    );
    println!("| --- | --- | --- | --: | --: | --: | --: | --: | --: | --: |");
    for fault in Fault::ALL {
        for mode in Mode::ALL {
            if arguments.want(fault, mode) {
                measure(fault, mode, arguments.after);
            }
        }
    }
}

fn measure(fault: Fault, mode: Mode, after: Duration) {
    let seen = Trial {
        tasks: 32,
        pause: Duration::ZERO,
        before: Duration::from_secs(1),
        after,
        ..Trial::new(fault, mode)
    }
    .run();
    for client in seen.clients() {
        let tally = seen.tally(client);
        let cells: [&dyn Display; 10] = [
            &fault,
            &mode,
            &client,
            &tally.executed,
            &tally.again,
            &tally.differ,
            &tally.held,
            &tally.refused,
            &seconds(seen.election()),
            &tally.served.map_or_else(|| "never".to_owned(), seconds),
        ];
        println!("| {} |", cells.map(ToString::to_string).join(" | "));
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// What this was measured with.
fn header() -> String {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    let date = date.map(|date| String::from_utf8_lossy(&date.stdout).trim().to_owned());
    let server = RedisServer::start().cli(&["INFO", "server"]);
    let version = server
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    format!(
        "idem {}, Redis {}, {} cores, {}",
        env!("CARGO_PKG_VERSION"),
        version.unwrap_or("of unknown version").trim(),
        available_parallelism().map_or(0, usize::from),
        date.unwrap_or_default(),
    )
}
