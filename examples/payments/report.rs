//! The table at the end, and whether its numbers add up.

use std::fmt::Write as _;

use super::check::Finding;
use super::client::Traffic;
use super::counts::{Counts, Seen, Tally};
use super::delivery::Log;
use super::money::thousands;
use super::request::Operation;

/// What the log holds, in a few lines.
#[must_use]
pub fn describe(log: &Log) -> String {
    let [pay, refund, notify] = Operation::ALL.map(|operation| {
        let (deliveries, distinct) = (log.count(operation), log.distinct(operation));
        (deliveries, distinct, deliveries - distinct)
    });
    let mut text = format!(
        "{} lines: {} deliveries and {} bad lines\n",
        thousands(log.lines() as u64),
        thousands(log.deliveries.len() as u64),
        log.bad.len()
    );
    for (name, (deliveries, distinct, repeats)) in
        [("payments", pay), ("refunds", refund), ("messages", notify)]
    {
        let _ = writeln!(
            text,
            "  {name:<9}{distinct:>6} asked for in {deliveries:>6} deliveries, {repeats:>6} repeats"
        );
    }
    let _ = writeln!(
        text,
        "  {} deliveries are older than the line above them, {} times an id comes with another content",
        log.out_of_order(),
        log.conflicts()
    );
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

/// What the client sent.
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

/// What the engine did with the calls.
#[must_use]
pub fn table(counts: &Counts) -> String {
    use Seen::{
        Duplicate, ErrorKept, ErrorReplayed, Executed, Mismatched, OtherRefusal, Released,
        Replayed, Running, Unknown, UnknownKept, Waited,
    };
    let tallies = Operation::ALL.map(|operation| counts.of(operation));
    let sum = |seen: &[Seen]| tallies.map(|t| seen.iter().map(|s| t[*s]).sum::<u64>());
    let mut text = String::new();
    head(&mut text, "what idem made of them");
    for (name, seen, note) in [
        (
            "executed",
            &[Executed][..],
            "the body ran, its answer is stored",
        ),
        (
            "business errors kept",
            &[ErrorKept],
            "the body ran and said no; that is stored too",
        ),
        (
            "unknown, kept",
            &[UnknownKept],
            "no answer from the gateway: nothing runs again",
        ),
        (
            "system errors, key given back",
            &[Released],
            "nothing is stored; retried below or above",
        ),
        (
            "replayed",
            &[Replayed],
            "the stored receipt, the body did not run",
        ),
        (
            "business errors replayed",
            &[ErrorReplayed],
            "the stored error, the body did not run",
        ),
        (
            "waited",
            &[Waited],
            "met the running call and got its answer",
        ),
        (
            "refused",
            &[Duplicate, Running, Unknown, OtherRefusal],
            "repeats of messages, and after an unknown end",
        ),
        (
            "mismatched",
            &[Mismatched],
            "the same id with another content",
        ),
    ] {
        row(&mut text, name, sum(seen), note);
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

/// Holds the engine's counts against the client's: two books kept by two parties.
#[must_use]
pub fn add_up(counts: &Counts, traffic: &[Traffic; 3]) -> Finding {
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
    Finding {
        title: "counts",
        text: format!(
            "idem and the client agree on each of {} calls",
            thousands(calls)
        ),
        wrong,
    }
}

fn pairs(tally: &Tally, traffic: &Traffic) -> [(&'static str, u64, u64); 8] {
    use Seen::{
        Duplicate, ErrorKept, ErrorReplayed, Executed, Mismatched, Released, Replayed, Running,
        Unknown, UnknownKept, Waited,
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
            tally[Released] + tally[Running],
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
