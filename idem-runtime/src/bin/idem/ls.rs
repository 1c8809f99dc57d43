//! `idem ls`: a page of records.

use std::process::ExitCode;

use idem_runtime::Engine;
use idem_runtime::admin::{Entries, Entry};
use serde_json::json;

use crate::arguments::Ls;
use crate::failure::Failure;
use crate::output::{Output, Progress};
use crate::pace::Pace;
use crate::record;
use crate::state;
use crate::table::{Align, Table};
use crate::text::{duration, records};

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
        // A step gives no more than the rest of the page, so that the cursor is behind its last record.
        entries = entries.page_size(limit - found.len());
        let Some(page) = scan.step(&mut entries).await? else {
            break None;
        };
        unreadable += page.unreadable();
        let cursor = page.cursor().map(str::to_owned);
        let old_enough = |entry: &Entry| verb.older_than.is_none_or(|age| entry.age() >= age);
        found.extend(page.into_entries().into_iter().filter(old_enough));
        if cursor.is_none() || found.len() >= limit {
            break cursor;
        }
        progress.show(|| format!("{} found, scanning …", records(found.len() as u64)));
    };
    drop(progress);
    if output.json {
        let entries: Vec<_> = found.iter().map(record::document).collect();
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
            table(&found, max_attempts).write(out)?;
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

fn table(found: &[Entry], max_attempts: u16) -> Table {
    let mut table = Table::new(&[
        ("OPERATION", Align::Left),
        ("DIGEST", Align::Left),
        ("STATE", Align::Left),
        ("ATTEMPTS", Align::Right),
        ("AGE", Align::Right),
        ("KEPT FOR", Align::Right),
        ("STEPS", Align::Left),
        ("BY HAND", Align::Left),
    ]);
    let yes = |is: bool| if is { "yes" } else { "-" }.to_owned();
    for entry in found {
        table.row(vec![
            entry.operation().to_owned(),
            entry.key().to_string(),
            match state::name(entry) {
                name if state::is_exhausted(entry, max_attempts) => format!("{name}, exhausted"),
                name => name.to_owned(),
            },
            entry.attempts().to_string(),
            duration(entry.age()),
            duration(entry.left()),
            yes(entry.has_steps()),
            yes(entry.is_by_hand()),
        ]);
    }
    table
}
