//! The payments example: its log, its run, failures of its check, and the program.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod cli;
mod kills;
#[path = "../support/mod.rs"]
mod support;

use std::process::Command;

use idem_examples::payments::check::{Evidence, Finding};
use idem_examples::payments::client::{Run, Settings, run};
use idem_examples::payments::counts::Counts;
use idem_examples::payments::faults::Faults;
use idem_examples::payments::place::Place;
use idem_examples::payments::provider::Kind;
use idem_examples::payments::request::{DELIVERIES, Log, Operation};
use idem_examples::payments::service::Protection;
use idem_runtime::Engine;
use idem_runtime::store::memory::MemoryStore;

/// The program with these arguments.
fn program(args: &[&str]) -> Command {
    let mut command = Command::new(support::built("payments"));
    command.args(args);
    command
}

/// Runs the program: its exit code, standard output and standard error.
fn payments(args: &[&str]) -> (Option<i32>, String, String) {
    let run = program(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (run.status.code(), text(run.stdout), text(run.stderr))
}

async fn drive(log: &Log, protection: Protection) -> (Run, Counts) {
    let counts = Counts::default();
    let engine = Engine::builder(MemoryStore::new()).observer(counts.clone());
    let settings = Settings {
        tasks: 64,
        faults: Faults::seeded(7),
        protection,
        progress: |_, _| {},
    };
    let place = Place::here(engine.build().unwrap()).await.unwrap();
    let run = run(&log.deliveries, place, settings).await;
    (run.unwrap(), counts)
}

/// Titles of the findings with a discrepancy.
fn wrong(evidence: &Evidence<'_>) -> Vec<&'static str> {
    let findings = evidence.check().into_iter();
    let wrong = findings.filter(|finding| !finding.is_well());
    wrong.map(|finding| finding.title).collect()
}

#[test]
fn bad_lines_are_reported_with_their_numbers_and_nothing_else_is_lost() {
    let log = Log::read(DELIVERIES);
    let bad: Vec<_> = log.bad.iter().map(|(line, _)| *line).collect();
    let expected = [
        177, 355, 528, 704, 883, 1056, 1232, 1411, 1586, 1760, 1940, 2112, 2289, 2465,
    ];
    assert_eq!(bad, expected, "{:#?}", log.bad);
    let lines = DELIVERIES.split(|byte| *byte == b'\n').count() - 1;
    assert_eq!(log.deliveries.len() + bad.len(), lines);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_passes_the_check_and_an_altered_journal_does_not() {
    let log = Log::read(DELIVERIES);
    let (run, counts) = drive(&log, Protection::Idempotent).await;
    let evidence = Evidence::of(&log, &run);
    let findings = evidence.check();
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.iter().all(Finding::is_well), "{}", text.join("\n"));
    for kind in [Kind::Payment, Kind::Refund] {
        assert_eq!(evidence.repeated(kind), Vec::<&_>::new());
    }
    for (operation, row) in [
        (Operation::Pay, "executed"),
        (Operation::Pay, "business errors kept"),
        (Operation::Pay, "system errors, key given back"),
        (Operation::Pay, "replayed"),
        (Operation::Pay, "waited"),
        (Operation::Pay, "mismatched"),
        (Operation::Notify, "refused, done before"),
        (Operation::Notify, "unknown outcome kept"),
    ] {
        assert!(counts.of(operation, row) > 0, "{operation:?}: {row}");
    }
    assert!(run.service.provider.repeats() > 0);
    // What a run without the attribute does not show: a movement that is lost, and an amount that is wrong.
    let mut altered = evidence.clone();
    let lost = altered.books.journal.remove(0);
    altered
        .movements
        .retain(|moved| moved.number != lost.number);
    altered.books.journal[0].amount += 1;
    let found = wrong(&altered);
    for title in ["payments", "amounts", "journal"] {
        assert!(found.contains(&title), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_attribute_money_moves_twice() {
    let log = Log::read(DELIVERIES);
    let (run, _) = drive(&log, Protection::Without).await;
    let evidence = Evidence::of(&log, &run);
    let found = wrong(&evidence);
    for title in [
        "payments",
        "refunds",
        "messages",
        "same answer",
        "conflicts",
    ] {
        assert!(found.contains(&title), "{found:?}");
    }
}
