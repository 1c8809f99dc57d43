//! The final table, and whether its numbers add up.

use std::fmt::Write as _;

use super::agreement::MONEY;
use super::check::Finding;
use super::client::Traffic;
use super::counts::{Counts, Seen, Tally};
use super::delivery::Log;
use super::ledger::Books;
use super::money::thousands;
use super::request::Operation;

/// Summary of the log, in a few lines.
#[must_use]
pub fn describe(log: &Log) -> String {
    let number = |number: usize| thousands(number as u64);
    let mut text = format!(
        "  {} lines: {} deliveries, {} bad lines\n",
        number(log.lines()),
        number(log.deliveries.len()),
        log.bad.len()
    );
    let names = ["payments", "refunds", "messages"];
    for (name, operation) in names.into_iter().zip(Operation::ALL) {
        let (deliveries, distinct) = (log.count(operation), log.distinct(operation));
        let _ = writeln!(
            text,
            "  {:>5} {name:<8} in {:>5} deliveries: {:>5} repeats",
            number(distinct),
            number(deliveries),
            number(deliveries - distinct)
        );
    }
    let _ = writeln!(
        text,
        "  {:>5} deliveries are older than the one above them",
        number(log.out_of_order())
    );
    let _ = writeln!(
        text,
        "  {:>5} ids come with two contents, as the same payment with another amount",
        number(log.conflicts())
    );
    if !log.bad.is_empty() {
        text.push_str("Bad lines, each of them skipped:\n");
    }
    for bad in &log.bad {
        let _ = writeln!(text, "  {bad}");
    }
    text
}

/// A row of the table: a number for each operation, and their sum.
fn row(text: &mut String, name: &str, numbers: [u64; 3], note: &str) {
    let [pay, refund, notify] = numbers.map(thousands);
    let total = thousands(numbers.iter().sum());
    let line = format!("  {name:<34}{pay:>8}{refund:>8}{notify:>8}{total:>9}   {note}");
    text.push_str(line.trim_end());
    text.push('\n');
}

fn head(text: &mut String, name: &str) {
    let _ = writeln!(
        text,
        "  {name:<34}{:>8}{:>8}{:>8}{:>9}",
        "pay", "refund", "notify", "all"
    );
}

fn rule(text: &mut String) {
    let _ = writeln!(text, "  {}", "-".repeat(67));
}

/// Calls of the client.
#[must_use]
pub fn calls(log: &Log, traffic: &[Traffic; 3]) -> String {
    let mut text = String::new();
    let deliveries = Operation::ALL.map(|operation| log.count(operation) as u64);
    head(&mut text, "what the client sent");
    row(&mut text, "deliveries", deliveries, "");
    row(
        &mut text,
        "called again",
        [0, 1, 2].map(|i| traffic[i].calls.saturating_sub(deliveries[i])),
        "after a time-out or a system error",
    );
    rule(&mut text);
    row(&mut text, "calls", traffic.map(|t| t.calls), "");
    row(
        &mut text,
        "of these, answer lost",
        traffic.map(|t| t.lost),
        "the call had reached the service",
    );
    text
}

/// The engine's results of the calls.
#[must_use]
pub fn table(counts: &Counts) -> String {
    use Seen::{
        Duplicate, ErrorKept, ErrorReplayed, Executed, Mismatched, OtherRefusal, Released,
        Replayed, Running, Unknown, UnknownKept, Waited,
    };
    let tallies = Operation::ALL.map(|operation| counts.of(operation));
    let mut text = String::new();
    head(&mut text, "what idem made of them");
    for (name, seen, note) in [
        (
            "executed",
            Executed,
            "the body ran, and its answer is stored",
        ),
        (
            "business errors kept",
            ErrorKept,
            "the body ran and said no; that is an answer too",
        ),
        (
            "system errors, key given back",
            Released,
            "nothing is stored; calling again runs the body",
        ),
        (
            "unknown outcome kept",
            UnknownKept,
            "the gateway fell silent: nothing runs again",
        ),
        (
            "replayed",
            Replayed,
            "the stored receipt; the body did not run",
        ),
        (
            "business errors replayed",
            ErrorReplayed,
            "the stored error; the body did not run",
        ),
        ("waited", Waited, "met the running call, and got its answer"),
        ("mismatched", Mismatched, "the same id with another content"),
        (
            "refused, done before",
            Duplicate,
            "`notify` has `on_duplicate = reject`",
        ),
        ("refused, still running", Running, "told when to call again"),
        ("refused, outcome unknown", Unknown, "a person has to look"),
        ("refused, other", OtherRefusal, "the store is down, say"),
    ] {
        row(&mut text, name, tallies.map(|t| t[seen]), note);
    }
    rule(&mut text);
    row(&mut text, "calls", tallies.map(|t| t.calls()), "");
    let trouble = tallies.map(|t| t.trouble);
    if trouble != [0; 3] {
        row(
            &mut text,
            "TROUBLE",
            trouble,
            "answers not stored, leases lost, bodies dropped",
        );
    }
    text
}

/// Compares the engine's counts with the client's, which are independent.
#[must_use]
pub fn add_up(counts: &Counts, traffic: &[Traffic; 3], books: &Books) -> Finding {
    let mut wrong = Vec::new();
    let mut calls = 0;
    for (operation, traffic) in Operation::ALL.into_iter().zip(traffic) {
        let tally = counts.of(operation);
        calls += traffic.calls;
        for (what, engine, client) in pairs(&tally, traffic) {
            if engine != client {
                wrong.push(format!(
                    "{}: {what}: {engine} and {client}",
                    operation.name()
                ));
            }
        }
    }
    let executed = MONEY.map(|(operation, _)| counts.of(operation)[Seen::Executed]);
    let executed: u64 = executed.iter().sum();
    let written = (books.journal.len() as u64).saturating_sub(books.earlier as u64);
    if executed != written + books.again {
        wrong.push(format!(
            "executed bodies and booked rows: {executed} and {written}, with {} booked before",
            books.again
        ));
    }
    let again = match books.again {
        0 => String::new(),
        again => format!(" ({} were booked by an earlier attempt)", thousands(again)),
    };
    Finding {
        title: "counts",
        text: format!(
            "idem and the client agree on {} calls; as many new rows as executed bodies{again}",
            thousands(calls)
        ),
        wrong,
    }
}

fn pairs(tally: &Tally, traffic: &Traffic) -> [(&'static str, u64, u64); 8] {
    use Seen::{
        Duplicate, ErrorKept, ErrorReplayed, Executed, Mismatched, OtherRefusal, Released,
        Replayed, Running, Unknown, UnknownKept, Waited,
    };
    // A waiting call gets a receipt or a business error, so those two are compared together.
    let answers = [Executed, Replayed, Waited, ErrorKept, ErrorReplayed];
    [
        (
            "calls by idem and by the client",
            tally.calls(),
            traffic.calls,
        ),
        (
            "calls and answers of the client",
            traffic.calls,
            traffic.answers(),
        ),
        ("bodies begun and ended", tally.claimed, tally.bodies()),
        (
            "receipts and business errors",
            answers.iter().map(|seen| tally[*seen]).sum(),
            traffic.receipts + traffic.declined,
        ),
        (
            "retryable answers",
            tally[Released] + tally[Running] + tally[OtherRefusal],
            traffic.retryable,
        ),
        ("mismatches", tally[Mismatched], traffic.mismatched),
        ("repeats refused", tally[Duplicate], traffic.repeats),
        (
            "unknown outcomes",
            tally[UnknownKept] + tally[Unknown],
            traffic.unknown,
        ),
    ]
}
