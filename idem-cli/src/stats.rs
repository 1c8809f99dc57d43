//! `idem stats`: counts and ages by operation, in one sweep over the records.

use std::collections::BTreeMap;

use idem_runtime::admin::{Entry, EntryState};
use idem_runtime::store::OutcomeKind;
use serde_json::{Value, json};

use crate::Session;
use crate::arguments::Stats;
use crate::failure::Failure;
use crate::output::{self, Column};
use crate::pace::Pace;
use crate::state::is_exhausted;
use crate::text::millis;

/// The most operations that are counted apart: names may be made of data by mistake.
const MOST_OPERATIONS: usize = 1_000;
const OTHERS: &str = "(other operations)";
const OPERATION: &str = "operation";

/// The members of a count. Those in milliseconds are the greatest ages.
const COLUMNS: [Column; 12] = [
    ("OPERATION", OPERATION, false),
    ("RECORDS", "records", false),
    ("RUNNING", "running", false),
    ("ABANDONED", "abandoned", false),
    // Abandoned or released ones without an attempt left; counted there as well.
    ("EXHAUSTED", "exhausted", true),
    ("UNKNOWN", "unknown", false),
    ("RELEASED", "released", true),
    ("VALUES", "values", false),
    ("ERRORS", "errors", true),
    ("NOT STORED", "not_stored", true),
    // Of running, abandoned, exhausted and unknown records.
    ("UNFINISHED FOR", "oldest_unfinished_ms", false),
    ("OLDEST", "oldest_ms", false),
];

/// The counts of an operation, by the names of [`COLUMNS`].
type Counts = BTreeMap<&'static str, u64>;

fn add(counts: &mut Counts, (name, number): (&'static str, u64)) {
    let counted = counts.entry(name).or_default();
    *counted = if name.ends_with("_ms") {
        number.max(*counted)
    } else {
        number + *counted
    };
}

fn add_entry(counts: &mut Counts, entry: &Entry, max_attempts: u16) {
    let is_exhausted = is_exhausted(entry, max_attempts);
    let (name, is_unfinished) = match entry.state() {
        EntryState::Running { .. } => ("running", true),
        EntryState::Abandoned => ("abandoned", true),
        EntryState::Released => ("released", is_exhausted),
        EntryState::Answered(OutcomeKind::Error) => ("errors", false),
        EntryState::Answered(_) => ("values", false),
        EntryState::NotStored => ("not_stored", false),
        // And states of a later version: an operator should look at them.
        _ => ("unknown", true),
    };
    let age = millis(entry.age());
    for (is_counted, name, number) in [
        (true, "records", 1),
        (true, name, 1),
        (is_exhausted, "exhausted", 1),
        (is_unfinished, "oldest_unfinished_ms", age),
        (true, "oldest_ms", age),
    ] {
        if is_counted {
            add(counts, (name, number));
        }
    }
}

fn document(operation: &str, counts: &Counts) -> Value {
    let members = COLUMNS.iter().map(|&(_, name, _)| {
        let value = match counts.get(name) {
            Some(number) => (*number).into(),
            None if name == OPERATION => operation.into(),
            None if name.ends_with("_ms") => Value::Null,
            None => 0.into(),
        };
        (name, value)
    });
    members.collect()
}

pub(crate) async fn run(session: &Session, verb: &Stats) -> Result<(), Failure> {
    let mut pace = Pace::new(verb.scan.rate, "counted");
    let mut entries = session.entries(verb.operation.as_ref(), &pace);
    let (mut operations, mut unreadable) = (BTreeMap::<String, Counts>::new(), 0);
    while let Some(page) = pace.step(&mut entries).await? {
        unreadable += page.unreadable();
        for entry in page {
            let name = entry.operation();
            let is_known = operations.contains_key(name) || operations.len() < MOST_OPERATIONS;
            let name = if is_known { name } else { OTHERS };
            let counts = operations.entry(name.to_owned()).or_default();
            add_entry(counts, &entry, session.max_attempts);
        }
    }
    drop(pace);
    let mut total = Counts::new();
    for (name, number) in operations.values().flatten() {
        add(&mut total, (*name, *number));
    }
    let mut total = document("total", &total);
    let rows = operations.iter();
    let mut rows: Vec<_> = rows.map(|(name, counts)| document(name, counts)).collect();
    if session.json {
        // It is of none.
        total.as_object_mut().map(|total| total.remove(OPERATION));
        let counts = json!({ "operations": rows, "total": total, "unreadable": unreadable });
        return output::document(&counts);
    }
    if rows.len() > 1 {
        rows.push(total);
    }
    output::text(|out| {
        if rows.is_empty() {
            return writeln!(out, "no records");
        }
        output::table(out, &COLUMNS, &rows)?;
        if unreadable > 0 {
            writeln!(
                out,
                "\n{unreadable} records of another layout are not counted"
            )?;
        }
        let note =
            "Ages are since the last write. An exhausted record is abandoned or released as well.";
        writeln!(out, "\n{note}")
    })
}
