//! A payment service of idempotent calls, driven by a log of webhooks.
//!
//! `cargo run --example payments`, and `-- --help`. Start reading at `service`: three annotated functions. The rest is
//! for the demonstration: a log (`request`), a client that calls again (`client`), doubles that fail (`provider`,
//! `faults`), the books (`ledger`) and a check (`check`). State that outlives the process is in the ledger's database,
//! and in the `notes` of the doubles.

mod args;
mod check;
mod client;
mod counts;
mod error;
mod faults;
mod ledger;
mod notes;
mod place;
mod provider;
mod request;
mod service;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;
use crate::check::{Evidence, Finding};
use crate::client::{Run, Settings, run};
use crate::counts::Counts;
use crate::faults::Faults;
use crate::place::Place;
use crate::request::Log;
use crate::service::Protection;

#[tokio::main]
async fn main() -> ExitCode {
    match payments(&Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("payments: {message}");
            ExitCode::from(2)
        }
    }
}

const INTRODUCTION: &str = "\
A payment service receives webhooks. Each comes at least once, in any order, and now and then one id
comes with another amount. On the way the provider, the database, the message gateway and the
network fail on purpose, and the client calls again.
";

/// Runs the log; returns whether the books agree with it.
async fn payments(args: &Args) -> Result<bool, String> {
    let log = Log::read();
    say(&format!("{INTRODUCTION}\n{log}"));

    let counts = Counts::default();
    let (place, words) = Place::open(args, &counts).await?;
    let protection = if args.without {
        say("\n`pay`, `refund` and `notify` are called WITHOUT the attribute.\n");
        Protection::Without
    } else {
        say(&format!(
            "\n`pay`, `refund` and `notify` carry `#[idempotent]`; {words}.\n"
        ));
        Protection::Idempotent
    };
    let settings = Settings {
        tasks: args.tasks,
        faults: Faults::seeded(args.seed),
        protection,
    };
    let run = run(&log.deliveries, place, settings).await?;
    Ok(conclude(args, &log, &counts, &run))
}

fn conclude(args: &Args, log: &Log, counts: &Counts, run: &Run) -> bool {
    say(&format!(
        "\n{} tasks at once, {:.1} s: {} calls, of which {} lost their answer on the way\n\n",
        args.tasks,
        run.elapsed.as_secs_f64(),
        run.calls,
        run.lost,
    ));
    let evidence = Evidence::of(log, run);
    let findings = evidence.check();
    if args.without {
        say(&format!(
            "Bodies that ran: {}, one for each call.\n\n",
            run.service.bodies()
        ));
    } else {
        say(&format!("{counts}\n"));
        say(&format!(
            "When a body runs again after a system error, its call of the provider is a repeat too.\n\
             {} were, and the provider knew them by `context().derive_key(\"provider\")`.\n\n",
            run.service.provider.repeats()
        ));
    }
    say("The books against the log\n");
    for finding in &findings {
        say(&format!("{finding}\n"));
    }
    let well = findings.iter().all(Finding::is_well);
    if args.without {
        say(&format!("\nWhat the repeats cost\n{}", evidence.damage()));
    }
    say(if !well {
        "\nWRONG: the books do not agree with the log\n"
    } else if run.service.bodies() == 0 {
        "\nok: everything was answered from the earlier run, and nothing moved again\n"
    } else {
        "\nok: everything that was asked for happened, and once\n"
    });
    well
}

/// Prints, and ignores a closed standard output.
fn say(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
