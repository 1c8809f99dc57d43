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

use std::collections::HashSet;
use std::process::Command;

use clap::CommandFactory as _;
use idem_examples::payments::args::{Args, Store};
use idem_examples::payments::check::{Evidence, Finding};
use idem_examples::payments::client::{Ending, Run, Settings, run};
use idem_examples::payments::counts::Counts;
use idem_examples::payments::faults::Faults;
use idem_examples::payments::place::Place;
use idem_examples::payments::provider::{Kind, Movement};
use idem_examples::payments::report;
use idem_examples::payments::request::{Log, NotifyRequest, Operation};
use idem_examples::payments::service::Protection;
use idem_runtime::Engine;
use idem_runtime::store::memory::MemoryStore;

const COMMITTED: &[u8] = include_bytes!("../../payments/deliveries.jsonl");

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
fn the_committed_log_holds_what_it_is_to_hold() {
    let log = Log::read(COMMITTED);
    assert!(log.deliveries.len() >= 2_000);
    assert!(log.out_of_order() >= 100);
    assert!(log.conflicts() >= 20);
    for operation in Operation::ALL {
        let (deliveries, ids) = log.count(operation);
        assert!(
            ids * 2 < deliveries,
            "{operation:?}: {ids} ids, {deliveries} deliveries"
        );
    }
}

#[test]
fn bad_lines_are_reported_with_their_numbers_and_nothing_else_is_lost() {
    let log = Log::read(COMMITTED);
    let expected = [
        (177, "EOF while parsing a string"),
        (355, "invalid type: string \"12.50\", expected u64"),
        (528, "EOF while parsing a value"),
        (704, "invalid unicode code point"),
        (883, "expected u64"),
        (1056, "expected u64"),
        (1232, "expected u64"),
        (1411, "expected u64"),
        (1586, "missing field `delivery`"),
        (1760, "unknown variant `payment.paused`"),
        (1940, "trailing characters"),
        (2112, "EOF while parsing a value"),
        (2289, "expected value"),
        (2465, "`amount` must be 1 to 1,000,000,000,000"),
    ];
    assert_eq!(log.bad.len(), expected.len(), "{:#?}", log.bad);
    for ((line, defect), (at, reason)) in log.bad.iter().zip(expected) {
        assert!(
            *line == at && defect.contains(reason),
            "line {line}: {defect}, not line {at}: {reason}"
        );
    }
    let lines = COMMITTED.split(|byte| *byte == b'\n').count() - 1;
    let numbers = log.deliveries.iter().map(|delivery| delivery.line);
    let mut all: Vec<usize> = numbers
        .chain(log.bad.iter().map(|(line, _)| *line))
        .collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(1..=lines));
}

#[test]
fn a_log_may_be_empty_and_may_lack_its_last_line_break() {
    for (bytes, bad) in [(&b""[..], &[][..]), (b"\n", &[]), (b"x\n\nx", &[1, 2, 3])] {
        let log = Log::read(bytes);
        let lines: Vec<usize> = log.bad.iter().map(|(line, _)| *line).collect();
        assert_eq!((log.deliveries.len(), &*lines), (0, bad), "{bytes:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_passes_the_check_and_an_altered_ledger_does_not() {
    let log = Log::read(COMMITTED);
    let (run, counts) = drive(&log, Protection::Idempotent).await;
    let evidence = Evidence::of(&log, &run, false);
    let sum = report::add_up(&counts, &run.traffic, &evidence.books);
    let findings: Vec<Finding> = evidence.check().into_iter().chain([sum]).collect();
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
    the_check_can_fail(&evidence, &counts, &run);
}

/// Each alteration is found, by the check that covers it.
fn the_check_can_fail(evidence: &Evidence<'_>, counts: &Counts, run: &Run) {
    type Alter = fn(&mut Evidence<'_>);
    let alterations: [(Alter, &[&str]); 9] = [
        (book_twice, &["payments", "provider", "journal"]),
        (charge_twice, &["payments", "provider"]),
        (lose_a_movement, &["payments", "journal"]),
        (
            |evidence| evidence.books.journal[3].amount += 1,
            &["amounts", "journal"],
        ),
        (
            |evidence| *evidence.books.balances.values_mut().next().unwrap() += 1,
            &["journal"],
        ),
        (|evidence| drop(lose_a_message(evidence)), &["messages"]),
        (
            |evidence| {
                let message = lose_a_message(evidence);
                evidence.sent.extend([message.clone(), message]);
            },
            &["messages"],
        ),
        (
            |evidence| {
                let (repeat, text) = a_repeated_answer(evidence);
                let other = text.replace("\"row\":", "\"row\":1");
                evidence.endings[repeat] = Ending::Answered(other);
            },
            &["same answer"],
        ),
        (
            |evidence| {
                let mut endings = evidence.endings.iter_mut();
                let mismatch = endings.find(|ending| **ending == Ending::Mismatched);
                *mismatch.unwrap() = Ending::DoneBefore;
            },
            &["conflicts"],
        ),
    ];
    for (number, (alter, found)) in alterations.into_iter().enumerate() {
        let mut altered = evidence.clone();
        alter(&mut altered);
        assert_eq!(wrong(&altered), found, "alteration {number}");
    }
    let (mut booked, mut charged) = (evidence.clone(), evidence.clone());
    book_twice(&mut booked);
    assert!(!report::add_up(counts, &run.traffic, &booked.books).is_well());
    charge_twice(&mut charged);
    assert_eq!(charged.repeated(Kind::Payment).len(), 1);
}

fn book_twice(evidence: &mut Evidence<'_>) {
    let row = of_a_payment(&evidence.books.journal).clone();
    evidence.books.journal.push(row);
}

fn charge_twice(evidence: &mut Evidence<'_>) {
    let mut moved = of_a_payment(&evidence.movements).clone();
    moved.number.push('x');
    evidence.movements.push(moved);
}

fn lose_a_movement(evidence: &mut Evidence<'_>) {
    let number = of_a_payment(&evidence.books.journal).number.clone();
    evidence.books.journal.retain(|row| row.number != number);
    evidence.movements.retain(|moved| moved.number != number);
}

fn of_a_payment(movements: &[Movement]) -> &Movement {
    let mut all = movements.iter();
    all.find(|moved| moved.kind == Kind::Payment).unwrap()
}

fn lose_a_message(evidence: &mut Evidence<'_>) -> NotifyRequest {
    let thanks = |sent: &NotifyRequest| sent.text.starts_with("alder-books: thank you");
    let first = evidence.sent.iter().position(thanks);
    evidence.sent.remove(first.unwrap())
}

/// A repeated delivery of a payment, and its receipt.
fn a_repeated_answer(evidence: &Evidence<'_>) -> (usize, String) {
    let mut seen = HashSet::new();
    let answers = evidence.log.deliveries.iter().zip(&evidence.endings);
    for (i, (delivery, ending)) in answers.enumerate() {
        let Ending::Answered(text) = ending else {
            continue;
        };
        let pays = delivery.request.operation() == Operation::Pay;
        if pays && !seen.insert(delivery.request.id()) {
            return (i, text.clone());
        }
    }
    unreachable!("the log repeats payments")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_attribute_money_moves_twice() {
    let log = Log::read(COMMITTED);
    let (run, _) = drive(&log, Protection::Without).await;
    let evidence = Evidence::of(&log, &run, false);
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
    let (charges, refunds) = (
        evidence.repeated(Kind::Payment),
        evidence.repeated(Kind::Refund),
    );
    let payments: HashSet<_> = charges
        .iter()
        .map(|moved| (&moved.merchant, &moved.id))
        .collect();
    let messages: HashSet<_> = evidence.sent.iter().collect();
    let damage = evidence.damage();
    assert!(payments.len() > 300 && charges.len() > 600, "{damage}");
    assert!(
        !refunds.is_empty() && evidence.sent.len() - messages.len() > 200,
        "{damage}"
    );
    assert!(
        evidence.movements.len() > evidence.books.journal.len(),
        "{damage}"
    );
}

#[test]
fn arguments_are_read_and_contradictions_are_refused() {
    Args::command().debug_assert();
    let read =
        |line: &str| Args::read([&["payments"], &*line.split(' ').collect::<Vec<_>>()].concat());
    let args = Args::read(["payments"]).unwrap();
    assert_eq!(args.store(), Store::Sqlite(None));
    assert_eq!((args.tasks, args.seed), (64, 7));
    let args = read("--redis redis://r --prefix=p --tasks 8 --seed 3").unwrap();
    assert_eq!(args.store(), Store::Redis("redis://r"));
    assert_eq!(
        (args.prefix.as_deref(), args.tasks, args.seed),
        (Some("p"), 8, 3)
    );
    let file = Store::Sqlite(Some("f.db".as_ref()));
    for line in [
        "--file f.db",
        "--store sqlite --file=f.db",
        "--file f.db --store sqlite",
    ] {
        assert_eq!(read(line).unwrap().store(), file);
    }
    assert_eq!(read("--store memory").unwrap().store(), Store::Memory);
    for (line, refusal) in [
        ("--redsi x", "unexpected argument '--redsi'"),
        ("--redis", "a value is required for '--redis <URL>'"),
        ("--without=yes", "unexpected value 'yes' for '--without'"),
        ("--tasks many", "invalid digit"),
        ("--tasks 0", "0 is not in 1..=10000"),
        ("--prefix p", "--redis <URL>"),
        ("--without --redis x", "'--without' cannot be used with"),
        ("--redis x --mysql y", "cannot be used with"),
        ("--redis x --store memory", "cannot be used with"),
        ("--mysql x --file f.db", "cannot be used with"),
        ("--redis x --fresh", "cannot be used with"),
        ("--without --fresh", "cannot be used with"),
        ("--store disk", "invalid value"),
        ("--store memory --fresh", "books that survive"),
        ("--store memory --file f.db", "books that survive"),
    ] {
        let refused = read(line).unwrap_err().to_string();
        assert!(refused.contains(refusal), "{line}: {refused}");
    }
}
