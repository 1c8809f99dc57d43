//! The payments example: its log, its run, and failures of its check.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use clap::CommandFactory as _;
use idem_examples::payments::args::{Args, Store};
use idem_examples::payments::check::{Evidence, Finding};
use idem_examples::payments::client::Ending;
use idem_examples::payments::counts::{Counts, Seen};
use idem_examples::payments::damage::Damage;
use idem_examples::payments::delivery::Log;
use idem_examples::payments::faults::Faults;
use idem_examples::payments::generator::{SEED, generate};
use idem_examples::payments::place::Place;
use idem_examples::payments::progress::Progress;
use idem_examples::payments::report;
use idem_examples::payments::request::Operation;
use idem_examples::payments::run::{Run, Settings, run};
use idem_examples::payments::service::Protection;
use idem_runtime::Engine;
use idem_runtime::store::memory::MemoryStore;

const COMMITTED: &[u8] = include_bytes!("../payments/deliveries.jsonl");

async fn drive(log: &Log, protection: Protection, faults: Faults) -> (Run, Counts) {
    let counts = Counts::default();
    let engine = Engine::builder(MemoryStore::new()).observer(counts.clone());
    let settings = Settings {
        tasks: 64,
        faults,
        protection,
    };
    let engine = engine.build().unwrap();
    let place = Place::here(engine);
    let run = run(&log.deliveries, place, settings, Progress::hidden()).await;
    (run.unwrap(), counts)
}

/// Titles of the findings with a discrepancy.
fn wrong(evidence: &Evidence<'_>) -> Vec<&'static str> {
    let findings = evidence.check().into_iter();
    let wrong = findings.filter(|finding| !finding.is_well());
    wrong.map(|finding| finding.title).collect()
}

#[test]
fn the_generator_reproduces_the_committed_log() {
    assert!(generate(SEED) == COMMITTED, "run the example payments_log");
    assert!(generate(SEED + 1) != COMMITTED);
}

#[test]
fn the_committed_log_holds_what_it_is_to_hold() {
    let log = Log::read(COMMITTED);
    assert!(log.deliveries.len() >= 2_000);
    assert!(log.out_of_order() >= 100);
    assert!(log.conflicts() >= 20);
    for operation in Operation::ALL {
        assert!(log.distinct(operation) * 2 < log.count(operation));
    }
}

#[test]
fn bad_lines_are_reported_with_their_numbers_and_nothing_else_is_lost() {
    let log = Log::read(COMMITTED);
    let reports: Vec<String> = log.bad.iter().map(ToString::to_string).collect();
    assert_eq!(
        reports,
        [
            "line 177: EOF while parsing a string (column 141)",
            "line 355: invalid type: string \"12.50\", expected u64 (column 195)",
            "line 528: empty",
            "line 704: not UTF-8 after byte 105",
            "line 883: invalid type: floating point `9.876543210987654e+19`, expected u64 (column 207)",
            "line 1056: invalid value: integer `-1250`, expected u64 (column 194)",
            "line 1232: invalid type: floating point `12.5`, expected u64 (column 193)",
            "line 1411: `data.amount` is missing",
            "line 1586: missing field `delivery` (column 209)",
            "line 1760: unknown event \"payment.paused\"",
            "line 1940: trailing characters (column 215)",
            "line 2112: empty",
            "line 2289: expected value (column 1)",
            "line 2465: `data.amount` must be 1 to 1,000,000,000,000",
        ]
    );
    let lines = COMMITTED.split(|byte| *byte == b'\n').count() - 1;
    assert_eq!(log.lines(), lines);
    let numbers = log.deliveries.iter().map(|delivery| delivery.line);
    let mut all: Vec<usize> = numbers.chain(log.bad.iter().map(|bad| bad.line)).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(1..=lines));
}

#[test]
fn a_log_may_be_empty_and_may_lack_its_last_line_break() {
    assert_eq!(Log::read(b"").lines(), 0);
    assert_eq!(Log::read(b"\n").lines(), 0);
    let log = Log::read(b"x\n\nx");
    assert_eq!(
        log.bad.iter().map(|bad| bad.line).collect::<Vec<_>>(),
        [1, 2, 3]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_passes_the_check_and_an_altered_ledger_does_not() {
    let log = Log::read(COMMITTED);
    let (run, counts) = drive(&log, Protection::Idempotent, Faults::seeded(7)).await;
    let evidence = Evidence::of(&log, &run, false);
    let sum = report::add_up(&counts, &run.traffic, &evidence.books);
    let findings: Vec<Finding> = evidence.check().into_iter().chain([sum]).collect();
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.iter().all(Finding::is_well), "{}", text.join("\n"));
    assert_eq!(Damage::of(&evidence), Damage::default());
    let pay = counts.of(Operation::Pay);
    for seen in [
        Seen::Executed,
        Seen::ErrorKept,
        Seen::Released,
        Seen::Replayed,
        Seen::Waited,
        Seen::Mismatched,
    ] {
        assert!(pay[seen] > 0, "no payment was {seen:?}");
    }
    let notify = counts.of(Operation::Notify);
    assert!(notify[Seen::Duplicate] > 0 && notify[Seen::UnknownKept] > 0);
    assert!(run.service.provider.repeats() > 0);
    the_check_can_fail(&evidence, &counts, &run);
}

/// Each alteration is found, by the check that covers it.
fn the_check_can_fail(evidence: &Evidence<'_>, counts: &Counts, run: &Run) {
    let mut booked_twice = evidence.clone();
    let row = booked_twice.books.journal[0].clone();
    booked_twice.books.journal.push(row);
    let found = wrong(&booked_twice);
    assert!(found.starts_with(&["payments"]), "{found:?}");
    assert!(
        found.contains(&"provider") && found.contains(&"journal"),
        "{found:?}"
    );
    assert!(!report::add_up(counts, &run.traffic, &booked_twice.books).is_well());

    let mut charged_twice = evidence.clone();
    let mut moved = charged_twice.movements[0].clone();
    moved.number.push('x');
    charged_twice.movements.push(moved);
    assert_eq!(wrong(&charged_twice), ["payments", "provider"]);
    assert_eq!(Damage::of(&charged_twice).charges, 1);

    let mut lost = evidence.clone();
    let row = lost.books.journal.pop().unwrap();
    lost.movements.retain(|moved| moved.number != row.movement);
    let found = wrong(&lost);
    assert!(found.contains(&"journal") && found.len() == 2, "{found:?}");

    let mut other_amount = evidence.clone();
    other_amount.books.journal[3].amount += 1;
    assert_eq!(wrong(&other_amount), ["amounts", "journal"]);

    let mut balance = evidence.clone();
    *balance.books.balances.values_mut().next().unwrap() += 1;
    assert_eq!(wrong(&balance), ["journal"]);

    let mut message_lost = evidence.clone();
    let text = "alder-books: thank you";
    let first = message_lost
        .sent
        .iter()
        .position(|sent| sent.text.starts_with(text));
    let message = message_lost.sent.remove(first.unwrap());
    assert_eq!(wrong(&message_lost), ["messages"]);
    message_lost.sent.extend([message.clone(), message]);
    assert_eq!(wrong(&message_lost), ["messages"]);

    let mut other_answer = evidence.clone();
    let (repeat, text) = a_repeated_answer(evidence);
    other_answer.endings[repeat] = Ending::Answered(text.replace("\"row\":", "\"row\":1"));
    assert_eq!(wrong(&other_answer), ["same answer"]);

    let mut mismatch = evidence.clone();
    let ending = mismatch
        .endings
        .iter_mut()
        .find(|ending| **ending == Ending::Mismatched);
    *ending.unwrap() = Ending::DoneBefore;
    assert_eq!(wrong(&mismatch), ["conflicts"]);
}

/// A repeated delivery of a payment, and its receipt.
fn a_repeated_answer(evidence: &Evidence<'_>) -> (usize, String) {
    let mut seen = std::collections::HashSet::new();
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
    let (run, _) = drive(&log, Protection::Without, Faults::seeded(7)).await;
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
    let damage = Damage::of(&evidence);
    assert!(damage.payments > 300 && damage.charges > 600, "{damage:?}");
    assert!(damage.refunds > 0 && damage.messages > 200, "{damage:?}");
    assert!(damage.unbooked > 0, "{damage:?}");
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
