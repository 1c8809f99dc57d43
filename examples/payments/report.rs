//! The tables of a run, and whether their numbers add up.

use std::fmt::Write as _;

use super::check::Finding;
use super::client::Traffic;
use super::counts::{CLAIMED, Counts, TROUBLE, rows};
use super::ledger::Books;
use super::request::{Log, Operation};

/// Summary of the log, in a few lines.
#[must_use]
pub fn describe(log: &Log) -> String {
    let (good, bad) = (log.deliveries.len(), log.bad.len());
    let mut text = format!(
        "  {} lines: {good} deliveries, {bad} bad lines\n",
        good + bad
    );
    for (name, operation) in ["payments", "refunds", "messages"]
        .into_iter()
        .zip(Operation::ALL)
    {
        let (deliveries, ids) = log.count(operation);
        let repeats = deliveries - ids;
        let _ = writeln!(
            text,
            "  {ids:>5} {name:<8} in {deliveries:>5} deliveries: {repeats:>5} repeats"
        );
    }
    let (older, conflicts) = (log.out_of_order(), log.conflicts());
    let _ = writeln!(
        text,
        "  {older:>5} deliveries are older than the one above them\n  {conflicts:>5} ids come with two contents, as \
         the same payment with another amount"
    );
    for (line, defect) in &log.bad {
        let _ = writeln!(text, "  line {line} is skipped: {defect}");
    }
    text
}

/// A row of a table: a number for each operation, and their sum.
fn row(text: &mut String, name: &str, numbers: [u64; 3], note: &str) {
    let [pay, refund, notify] = numbers;
    let total: u64 = numbers.iter().sum();
    let line = format!("  {name:<34}{pay:>8}{refund:>8}{notify:>8}{total:>9}   {note}");
    let _ = writeln!(text, "{}", line.trim_end());
}

fn head(name: &str) -> String {
    let [pay, refund, notify, all] = ["pay", "refund", "notify", "all"];
    format!("  {name:<34}{pay:>8}{refund:>8}{notify:>8}{all:>9}\n")
}

/// Calls of the client.
#[must_use]
pub fn calls(log: &Log, traffic: &[Traffic; 3]) -> String {
    let mut text = head("what the client sent");
    let deliveries = Operation::ALL.map(|operation| log.count(operation).0 as u64);
    let calls = traffic.map(|traffic| traffic.calls);
    let again = [0, 1, 2].map(|i| calls[i].saturating_sub(deliveries[i]));
    let lost = traffic.map(|traffic| traffic.lost);
    for (name, numbers, note) in [
        ("deliveries", deliveries, ""),
        ("called again", again, "after a time-out or a system error"),
        ("calls", calls, ""),
        (
            "of these, answer lost",
            lost,
            "the call had reached the service",
        ),
    ] {
        row(&mut text, name, numbers, note);
    }
    text
}

/// The engine's results of the calls.
#[must_use]
pub fn table(counts: &Counts) -> String {
    let mut text = head("what idem made of them");
    let of = |name| Operation::ALL.map(|operation| counts.of(operation, name));
    for (name, note) in rows() {
        row(&mut text, name, of(name), note);
    }
    let calls = Operation::ALL.map(|operation| counts.calls(operation));
    row(&mut text, "calls", calls, "");
    if of(TROUBLE) != [0; 3] {
        let note = "answers not stored, leases lost, bodies dropped";
        row(&mut text, TROUBLE, of(TROUBLE), note);
    }
    text
}

/// Compares the engine's counts with the client's, which are independent.
#[must_use]
pub fn add_up(counts: &Counts, traffic: &[Traffic; 3], books: &Books) -> Finding {
    let mut wrong = Vec::new();
    for (operation, traffic) in Operation::ALL.into_iter().zip(traffic) {
        for (what, engine, client) in pairs(counts, operation, traffic) {
            if engine != client {
                wrong.push(format!(
                    "{}: {what}: {engine} and {client}",
                    operation.name()
                ));
            }
        }
    }
    let money = [Operation::Pay, Operation::Refund].into_iter();
    let executed: u64 = money.map(|money| counts.of(money, "executed")).sum();
    let written = (books.journal.len() as u64).saturating_sub(books.earlier);
    let again = books.again;
    if executed != written + again {
        wrong.push(format!(
            "executed bodies and booked rows: {executed} and {written}, with {again} booked before"
        ));
    }
    let again = match again {
        0 => String::new(),
        again => format!(" ({again} were booked by an earlier attempt)"),
    };
    let calls: u64 = traffic.iter().map(|traffic| traffic.calls).sum();
    Finding {
        title: "counts",
        text: format!(
            "idem and the client agree on {calls} calls; as many new rows as executed bodies{again}"
        ),
        wrong,
    }
}

/// Pairs of numbers that must be equal: what they are, the engine's, and the client's.
fn pairs(
    counts: &Counts,
    operation: Operation,
    traffic: &Traffic,
) -> [(&'static str, u64, u64); 7] {
    let sum = |rows: &[&'static str]| -> u64 {
        let counts = rows.iter().map(|row| counts.of(operation, row));
        counts.sum()
    };
    let (kept, released) = ("business errors kept", "system errors, key given back");
    let unknown = "unknown outcome kept";
    // A waiting call gets a receipt or a business error, so those two are compared together.
    let replayed = ["replayed", "waited", "business errors replayed"];
    let answers = sum(&["executed", kept]) + sum(&replayed);
    let retryable = sum(&[released, "refused, still running", "refused, other"]);
    [
        ("calls", counts.calls(operation), traffic.calls),
        (
            "bodies begun and ended",
            sum(&[CLAIMED]),
            sum(&["executed", kept, unknown, released]),
        ),
        (
            "receipts and business errors",
            answers,
            traffic.receipts + traffic.declined,
        ),
        ("retryable answers", retryable, traffic.retryable),
        ("mismatches", sum(&["mismatched"]), traffic.mismatched),
        (
            "repeats refused",
            sum(&["refused, done before"]),
            traffic.repeats,
        ),
        (
            "unknown outcomes",
            sum(&[unknown, "refused, outcome unknown"]),
            traffic.unknown,
        ),
    ]
}
