//! The tables of a run.

use std::fmt::Write as _;

use crate::client::Traffic;
use crate::counts::{Counts, TROUBLE, rows};
use crate::request::{Log, Operation};

/// Summary of the log, in a few lines.
pub(crate) fn describe(log: &Log) -> String {
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

pub(crate) fn calls(log: &Log, traffic: &[Traffic; 3]) -> String {
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
pub(crate) fn table(counts: &Counts) -> String {
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
