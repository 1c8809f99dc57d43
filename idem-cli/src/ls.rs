//! `idem ls`: a page of records.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use idem_runtime::Engine;
use idem_runtime::admin::{Entry, EntryState};
use serde_json::{Value, json};

use crate::Session;
use crate::arguments::Ls;
use crate::failure::Failure;
use crate::output::{self, Progress};
use crate::pace::Pace;
use crate::record;
use crate::state;
use crate::table::{self, Column};
use crate::text::{duration, millis, records};

/// A listed record.
struct Found {
    entry: Entry,
    label: Option<String>,
    /// The time of its last write or renewal.
    written: SystemTime,
}

const NONE: &str = "-";

pub(crate) async fn run(session: &Session, verb: &Ls) -> Result<ExitCode, Failure> {
    let limit = usize::try_from(verb.limit).unwrap_or(usize::MAX);
    let mut scan = Pace::new(verb.scan.rate);
    let mut entries = record::entries(&session.engine, verb.operation.as_ref(), verb.state);
    entries = entries.step_size(scan.step_size());
    if let Some(cursor) = &verb.after {
        entries = entries.after(cursor.clone());
    }
    let (mut found, mut unreadable, mut progress) = (Vec::new(), 0, Progress::new());
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
            let matches = verb.older_than.is_none_or(|age| entry.age() >= age)
                && verb.state.is_none_or(|state| state.is_of(&entry));
            if !matches {
                continue;
            }
            let written = SystemTime::now().checked_sub(entry.age());
            let written = written.unwrap_or(SystemTime::UNIX_EPOCH);
            // Not read for its label if it is younger than a full list.
            let is_younger = found.len() >= limit
                && found
                    .last()
                    .is_some_and(|last: &Found| last.written < written);
            if verb.oldest && is_younger {
                continue;
            }
            let mut label = None;
            if let Some(wanted) = &verb.label {
                label = read_label(&session.engine, &entry, &mut scan).await?;
                if !label.as_ref().is_some_and(|label| label.contains(wanted)) {
                    continue;
                }
                progress
                    .show(|| format!("{} found, reading labels …", records(found.len() as u64)));
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
        let is_full = !verb.oldest && found.len() >= limit;
        if cursor.is_none() || is_full {
            break cursor.filter(|_| !verb.oldest);
        }
        progress.show(|| format!("{} found, scanning …", records(found.len() as u64)));
    };
    oldest(&mut found);
    if verb.label.is_none() {
        for Found { entry, label, .. } in &mut found {
            // A record with an answer is not read for its label.
            if !matches!(entry.state(), EntryState::Answered(_)) {
                *label = read_label(&session.engine, entry, &mut scan).await?;
            }
            progress.show(|| "reading labels …".to_owned());
        }
    }
    drop(progress);
    // Of one moment, although the records were listed one after the other.
    let now = SystemTime::now();
    let age = |found: &Found| now.duration_since(found.written).unwrap_or_default();
    if session.json {
        let entries: Vec<_> = (found.iter())
            .map(|found| document(found, age(found)))
            .collect();
        output::document(&json!({
            "entries": entries,
            "unreadable": unreadable,
            "cursor": cursor,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::text(|out| {
        if found.is_empty() {
            writeln!(out, "no such records")?;
        } else {
            table::write(out, &columns(&found, age, session.max_attempts))?;
        }
        if unreadable > 0 {
            writeln!(
                out,
                "\n{unreadable} record(s) of another layout, which this version cannot read"
            )?;
        }
        if let Some(cursor) = &cursor {
            writeln!(out, "\nmore: --after {cursor}")?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn document(Found { entry, label, .. }: &Found, age: Duration) -> Value {
    let mut document = record::document(entry);
    document["age_ms"] = millis(age).into();
    if let Some(label) = label {
        document["label"] = label.as_str().into();
    }
    document
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
    let whole = record::whole(engine, entry, scan).await?;
    Ok(whole.and_then(|whole| whole.label()))
}

fn columns(found: &[Found], age: impl Fn(&Found) -> Duration, max_attempts: u16) -> Vec<Column> {
    let cells = |cell: fn(&Entry) -> String| found.iter().map(move |found| cell(&found.entry));
    let yes = |is: fn(&Entry) -> bool| {
        let cells = found.iter().map(move |found| is(&found.entry));
        cells.map(|is| if is { "yes" } else { NONE }.to_owned())
    };
    let label = |found: &Found| found.label.clone().unwrap_or_else(|| NONE.to_owned());
    let state = |found: &Found| match state::name(&found.entry) {
        name if state::is_exhausted(&found.entry, max_attempts) => format!("{name}, exhausted"),
        name => name.to_owned(),
    };
    let mut columns = vec![
        Column::left("OPERATION", cells(|entry| entry.operation().to_owned())),
        Column::left("DIGEST", cells(|entry| entry.key().to_string())),
        Column::left("LABEL", found.iter().map(label)),
        Column::left("STATE", found.iter().map(state)),
        Column::right("ATTEMPTS", cells(|entry| entry.attempts().to_string())),
        Column::right("AGE", found.iter().map(|found| duration(age(found)))),
        Column::right("KEPT FOR", cells(|entry| duration(entry.left()))),
        Column::left("STEPS", yes(Entry::has_steps)),
        Column::left("BY HAND", yes(Entry::is_by_hand)),
    ];
    // No record has a label.
    if columns[2].is_all(NONE) {
        columns.remove(2);
    }
    columns
}
