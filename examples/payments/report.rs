//! The tables of a run, and whether their numbers add up.

use std::fmt::Write as _;

use super::check::Finding;
use super::client::Traffic;
use super::counts::{Counts, Seen};
use super::ledger::Books;
use super::request::{Log, Operation};

/// The rows of the engine's table.
const ROWS: [(Seen, &str, &str); 12] = [
    (
        Seen::Executed,
        "executed",
        "the body ran, and its answer is stored",
    ),
    (
        Seen::ErrorKept,
        "business errors kept",
        "the body ran and said no; that is an answer too",
    ),
    (
        Seen::Released,
        "system errors, key given back",
        "nothing is stored; calling again runs the body",
    ),
    (
        Seen::UnknownKept,
        "unknown outcome kept",
        "the gateway fell silent: nothing runs again",
    ),
    (
        Seen::Replayed,
        "replayed",
        "the stored receipt; the body did not run",
    ),
    (
        Seen::ErrorReplayed,
        "business errors replayed",
        "the stored error; the body did not run",
    ),
    (
        Seen::Waited,
        "waited",
        "met the running call, and got its answer",
    ),
    (
        Seen::Mismatched,
        "mismatched",
        "the same id with another content",
    ),
    (
        Seen::Duplicate,
        "refused, done before",
        "`notify` has `on_duplicate = reject`",
    ),
    (
        Seen::Running,
        "refused, still running",
        "told when to call again",
    ),
    (
        Seen::Unknown,
        "refused, outcome unknown",
        "a person has to look",
    ),
    (
        Seen::OtherRefusal,
        "refused, other",
        "the store is down, say",
    ),
];

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
    format!(
        "  {name:<34}{:>8}{:>8}{:>8}{:>9}\n",
        "pay", "refund", "notify", "all"
    )
}

/// Calls of the client.
#[must_use]
pub fn calls(log: &Log, traffic: &[Traffic; 3]) -> String {
    let mut text = head("what the client sent");
    let deliveries = Operation::ALL.map(|operation| log.count(operation).0 as u64);
    let calls = traffic.map(|traffic| traffic.calls);
    row(&mut text, "deliveries", deliveries, "");
    let again = [0, 1, 2].map(|i| calls[i].saturating_sub(deliveries[i]));
    row(
        &mut text,
        "called again",
        again,
        "after a time-out or a system error",
    );
    row(&mut text, "calls", calls, "");
    let lost = traffic.map(|traffic| traffic.lost);
    row(
        &mut text,
        "of these, answer lost",
        lost,
        "the call had reached the service",
    );
    text
}

/// The engine's results of the calls.
#[must_use]
pub fn table(counts: &Counts) -> String {
    let mut text = head("what idem made of them");
    for (seen, name, note) in ROWS {
        row(
            &mut text,
            name,
            Operation::ALL.map(|operation| counts.of(operation, seen)),
            note,
        );
    }
    row(
        &mut text,
        "calls",
        Operation::ALL.map(|operation| counts.calls(operation)),
        "",
    );
    let trouble = Operation::ALL.map(|operation| counts.of(operation, Seen::Trouble));
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
    let executed =
        [Operation::Pay, Operation::Refund].map(|money| counts.of(money, Seen::Executed));
    let executed: u64 = executed.iter().sum();
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
    let sum = |seen: &[Seen]| -> u64 { seen.iter().map(|seen| counts.of(operation, *seen)).sum() };
    let bodies = sum(&[
        Seen::Executed,
        Seen::ErrorKept,
        Seen::UnknownKept,
        Seen::Released,
    ]);
    // A waiting call gets a receipt or a business error, so those two are compared together.
    let answers = sum(&[
        Seen::Executed,
        Seen::Replayed,
        Seen::Waited,
        Seen::ErrorKept,
        Seen::ErrorReplayed,
    ]);
    let retryable = sum(&[Seen::Released, Seen::Running, Seen::OtherRefusal]);
    let unknown = sum(&[Seen::UnknownKept, Seen::Unknown]);
    [
        ("calls", counts.calls(operation), traffic.calls),
        ("bodies begun and ended", sum(&[Seen::Claimed]), bodies),
        (
            "receipts and business errors",
            answers,
            traffic.receipts + traffic.declined,
        ),
        ("retryable answers", retryable, traffic.retryable),
        ("mismatches", sum(&[Seen::Mismatched]), traffic.mismatched),
        ("repeats refused", sum(&[Seen::Duplicate]), traffic.repeats),
        ("unknown outcomes", unknown, traffic.unknown),
    ]
}
