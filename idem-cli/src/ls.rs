//! `idem ls`: a page of records.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use idem_runtime::admin::{Entries, Entry, EntryState};
use idem_runtime::{Engine, ErrorKind};
use serde_json::{Value, json};

use crate::arguments::Ls;
use crate::failure::Failure;
use crate::output::{Output, Progress};
use crate::pace::Pace;
use crate::record;
use crate::state;
use crate::table::{Align, Table};
use crate::text::{duration, millis, records};

/// A listed record.
struct Found {
    entry: Entry,
    label: Option<String>,
    /// The time of its last write or renewal.
    written: SystemTime,
}

/// A column that is there if a record has a label.
const LABEL: &str = "LABEL";
const NO_LABEL: &str = "-";

pub(crate) async fn run(
    engine: &Engine,
    verb: &Ls,
    max_attempts: u16,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let limit = usize::try_from(verb.limit).unwrap_or(usize::MAX);
    let mut scan = Pace::new(verb.scan.rate);
    let mut entries = entries(engine, verb).step_size(scan.step_size());
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
                label = read_label(engine, &entry, &mut scan).await?;
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
                *label = read_label(engine, entry, &mut scan).await?;
            }
            progress.show(|| "reading labels …".to_owned());
        }
    }
    drop(progress);
    // Of one moment, although the records were listed one after the other.
    let now = SystemTime::now();
    let age = |found: &Found| now.duration_since(found.written).unwrap_or_default();
    if output.json {
        let entries: Vec<_> = (found.iter())
            .map(|found| document(found, age(found)))
            .collect();
        Output::document(&json!({
            "entries": entries,
            "unreadable": unreadable,
            "cursor": cursor,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    Output::text(|out| {
        if found.is_empty() {
            writeln!(out, "no such records")?;
        } else {
            table(&found, age, max_attempts).write(out)?;
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

fn entries(engine: &Engine, verb: &Ls) -> Entries {
    let mut entries = engine.entries();
    if let Some(operation) = &verb.operation {
        entries = entries.operation(operation.clone());
    }
    if let Some(state) = verb.state {
        entries = entries.state(state.entries());
    }
    if let Some(cursor) = &verb.after {
        entries = entries.after(cursor.clone());
    }
    entries
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
    scan.wait().await;
    let digest = entry.key().to_string();
    let whole = engine.entry(entry.operation(), &digest);
    match whole.await {
        // It may have expired by now.
        Ok(whole) => Ok(whole.and_then(|whole| whole.label())),
        Err(error) if matches!(error.kind(), ErrorKind::UnknownRecord | ErrorKind::TooLarge) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn table(found: &[Found], age: impl Fn(&Found) -> Duration, max_attempts: u16) -> Table {
    let mut table = Table::new(&[
        ("OPERATION", Align::Left),
        ("DIGEST", Align::Left),
        (LABEL, Align::Left),
        ("STATE", Align::Left),
        ("ATTEMPTS", Align::Right),
        ("AGE", Align::Right),
        ("KEPT FOR", Align::Right),
        ("STEPS", Align::Left),
        ("BY HAND", Align::Left),
    ]);
    let yes = |is: bool| if is { "yes" } else { "-" }.to_owned();
    for one in found {
        let Found { entry, label, .. } = one;
        table.row(vec![
            entry.operation().to_owned(),
            entry.key().to_string(),
            label.clone().unwrap_or_else(|| NO_LABEL.to_owned()),
            match state::name(entry) {
                name if state::is_exhausted(entry, max_attempts) => format!("{name}, exhausted"),
                name => name.to_owned(),
            },
            entry.attempts().to_string(),
            duration(age(one)),
            duration(entry.left()),
            yes(entry.has_steps()),
            yes(entry.is_by_hand()),
        ]);
    }
    table.hide(LABEL, NO_LABEL);
    table
}
