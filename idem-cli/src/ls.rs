//! `idem ls`: a page of records.

use std::time::SystemTime;

use idem_runtime::Engine;
use idem_runtime::admin::{Entry, EntryState};
use serde_json::json;

use crate::Session;
use crate::arguments::Ls;
use crate::failure::Failure;
use crate::output::{self, Column};
use crate::pace::Pace;
use crate::record;
use crate::state::is_exhausted;
use crate::text::millis;

const COLUMNS: [Column; 9] = [
    ("OPERATION", "operation", false),
    ("DIGEST", "digest", false),
    ("LABEL", "label", true),
    ("STATE", "state", false),
    ("ATTEMPTS", "attempts", false),
    ("AGE", "age_ms", false),
    ("KEPT FOR", "left_ms", false),
    ("STEPS", "has_steps", false),
    ("BY HAND", "by_hand", false),
];

/// A listed record.
struct Found {
    entry: Entry,
    label: Option<String>,
    /// The time of its last write or renewal.
    written: SystemTime,
}

pub(crate) async fn run(session: &Session, verb: &Ls) -> Result<(), Failure> {
    let limit = usize::try_from(verb.limit).unwrap_or(usize::MAX);
    let mut scan = Pace::new(verb.scan.rate, "found");
    let entries = session.entries(verb.operation.as_ref(), &scan);
    let mut entries = verb.filter.of(entries);
    if let Some(cursor) = &verb.after {
        entries = entries.after(cursor.clone());
    }
    let (mut found, mut unreadable) = (Vec::<Found>::new(), 0);
    let cursor = loop {
        if !verb.oldest {
            // A step gives no more than the rest of the page, so that the cursor is behind its last record.
            entries = entries.page_size(limit - found.len());
        }
        let Some(page) = scan.step(&mut entries).await? else {
            break None;
        };
        unreadable += page.unreadable();
        let cursor = page.cursor().map(str::to_owned);
        for entry in page.into_entries() {
            let written = SystemTime::now().checked_sub(entry.age());
            let written = written.unwrap_or(SystemTime::UNIX_EPOCH);
            // Not read for its label if it is younger than a full list.
            let is_younger =
                found.len() >= limit && (found.last()).is_some_and(|last| last.written < written);
            if verb.oldest && is_younger || !verb.filter.matches(&entry) {
                continue;
            }
            let mut label = None;
            if let Some(wanted) = &verb.label {
                label = read_label(&session.engine, &entry, &mut scan).await?;
                if !label.as_ref().is_some_and(|label| label.contains(wanted)) {
                    continue;
                }
            }
            found.push(Found {
                entry,
                label,
                written,
            });
            if verb.oldest && found.len() >= limit {
                oldest(&mut found);
                found.truncate(limit);
            }
        }
        if cursor.is_none() || !verb.oldest && found.len() >= limit {
            break cursor;
        }
    };
    oldest(&mut found);
    for Found { entry, label, .. } in &mut found {
        // A record with an answer is not read for its label.
        if verb.label.is_none() && !matches!(entry.state(), EntryState::Answered(_)) {
            *label = read_label(&session.engine, entry, &mut scan).await?;
        }
    }
    drop(scan);
    // Of one moment, although the records were listed one after the other.
    let now = SystemTime::now();
    let documents = found.iter().map(|found| {
        let mut document = record::document(&found.entry);
        let age = now.duration_since(found.written).unwrap_or_default();
        document["age_ms"] = millis(age).into();
        if let Some(label) = &found.label {
            document["label"] = label.as_str().into();
        }
        if !session.json && is_exhausted(&found.entry, session.max_attempts) {
            let state = document["state"].as_str().unwrap_or_default();
            document["state"] = format!("{state}, exhausted").into();
        }
        document
    });
    let documents: Vec<_> = documents.collect();
    if session.json {
        return output::document(&json!({
            "entries": documents,
            "unreadable": unreadable,
            "cursor": cursor,
        }));
    }
    output::text(|out| {
        if documents.is_empty() {
            writeln!(out, "no such records")?;
        } else {
            output::table(out, &COLUMNS, &documents)?;
        }
        if unreadable > 0 {
            let note = "record(s) of another layout, which this version cannot read";
            writeln!(out, "\n{unreadable} {note}")?;
        }
        match &cursor {
            Some(cursor) => writeln!(out, "\nmore: --after {cursor}"),
            None => Ok(()),
        }
    })
}

/// Sorts by age, first the oldest. A record that two pages name is there once.
fn oldest(found: &mut Vec<Found>) {
    let name = |found: &Found| (found.entry.operation().to_owned(), *found.entry.key());
    found.sort_by_cached_key(|found| (found.written, name(found)));
    found.dedup_by(|one, other| name(one) == name(other));
}

/// The label of a record. A listing reads headers alone, and so this reads the record, with its answer.
async fn read_label(
    engine: &Engine,
    entry: &Entry,
    scan: &mut Pace,
) -> Result<Option<String>, Failure> {
    if !entry.has_journal() {
        return Ok(None);
    }
    let whole = scan.whole(engine, entry).await?;
    Ok(whole.and_then(|whole| whole.label()))
}
