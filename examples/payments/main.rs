//! `cargo run --example payments`: see `--help`, and [`idem_examples::payments::service`].

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use idem_examples::payments::args::Args;
use idem_examples::payments::check::{Evidence, Finding};
use idem_examples::payments::client::{Run, Settings, run};
use idem_examples::payments::counts::Counts;
use idem_examples::payments::faults::Faults;
use idem_examples::payments::place::Place;
use idem_examples::payments::report;
use idem_examples::payments::request::{DELIVERIES, Log};
use idem_examples::payments::service::Protection;

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
    let log = Log::read(DELIVERIES);
    say(&format!("{INTRODUCTION}\n{}", report::describe(&log)));

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
        progress,
    };
    let run = run(&log.deliveries, place, settings).await?;
    Ok(conclude(args, &log, &counts, &run))
}

fn conclude(args: &Args, log: &Log, counts: &Counts, run: &Run) -> bool {
    say(&format!(
        "\n{} tasks at once, {:.1} s\n\n{}\n",
        args.tasks,
        run.elapsed.as_secs_f64(),
        report::calls(log, &run.traffic)
    ));
    let evidence = Evidence::of(log, run);
    let findings = evidence.check();
    if args.without {
        say(&format!(
            "Bodies that ran: {}, one for each call.\n\n",
            run.service.bodies()
        ));
    } else {
        say(&format!("{}\n", report::table(counts)));
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

/// A line every tenth of the way.
fn progress(done: usize, total: usize) {
    let tenth = |done: usize| done * 10 / total;
    if tenth(done) > tenth(done - 1) {
        eprintln!("{:>3} %  {done} deliveries", tenth(done) * 10);
    }
}

/// Prints, and ignores a closed standard output.
fn say(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
