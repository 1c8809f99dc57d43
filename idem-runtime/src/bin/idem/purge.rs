//! `idem purge`: the records of an operation that match are reset and expire, one compare-and-set each.

use std::process::ExitCode;
use std::time::Duration;

use idem_runtime::admin::{Entries, Entry, EntryState};
use idem_runtime::{Engine, Error, ErrorKind};
use serde_json::json;
use tokio::task::JoinSet;

use crate::arguments::Purge;
use crate::confirm::confirm;
use crate::connect::Connected;
use crate::failure::Failure;
use crate::output::Output;
use crate::pace::{Pace, STEP};
use crate::text::{count, duration};

/// Removals that are under way at once.
const AT_ONCE: usize = 16;

/// What a purge has done.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    removed: u64,
    /// Records that a call claimed or changed between the listing and the removal.
    changed: u64,
}

pub(crate) async fn run(
    connected: &Connected,
    engine: &Engine,
    verb: &Purge,
    output: &Output,
) -> Result<ExitCode, Failure> {
    if verb.expired {
        return expired(connected, verb, output).await;
    }
    let operation = verb.operation.clone().unwrap_or_default();
    let mut expected = None;
    if verb.dry_run || !verb.yes {
        let (number, oldest) = matching(engine, verb, output).await?;
        expected = Some(number);
        if !output.json {
            output.text(|out| {
                let oldest = oldest.map_or_else(String::new, |age| format!(", the oldest {} old", duration(age)));
                writeln!(out, "{} records of `{operation}` match{oldest}", count(number))
            })?;
        }
        if number == 0 || verb.dry_run {
            if output.json {
                output.document(&json!({ "matching": number, "removed": 0, "changed": 0 }))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let question = format!(
            "Remove them? The next call of each key runs its body: if its effect has happened, it happens again"
        );
        confirm(verb.yes, &question)?;
    }
    let done = remove(engine, verb, output).await?;
    if output.json {
        output.document(&json!({
            "matching": expected,
            "removed": done.removed,
            "changed": done.changed,
        }))?;
    } else {
        output.text(|out| {
            write!(out, "{} records removed: they expire within 10 seconds", count(done.removed))?;
            if done.changed > 0 {
                write!(out, "; {} changed meanwhile and stay", count(done.changed))?;
            }
            writeln!(out)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn entries(engine: &Engine, verb: &Purge) -> Entries {
    let mut entries = engine.entries().page_size(STEP as usize);
    if let Some(operation) = &verb.operation {
        entries = entries.operation(operation.clone());
    }
    if let Some(state) = verb.state {
        entries = entries.state(state.entries());
    }
    entries
}

/// Whether a record is to be removed.
fn matches(verb: &Purge, entry: &Entry) -> bool {
    let state = match entry.state() {
        EntryState::Running { .. } => false,
        EntryState::Answered(_) | EntryState::Released => true,
        _ => verb.state.is_some(),
    };
    state && verb.older_than.is_none_or(|age| entry.age() >= age)
}

/// How many records match, and the age of the oldest.
async fn matching(
    engine: &Engine,
    verb: &Purge,
    output: &Output,
) -> Result<(u64, Option<Duration>), Failure> {
    let mut entries = entries(engine, verb);
    let mut pace = Pace::new(verb.scan.rate, STEP);
    let (mut number, mut oldest) = (0, None);
    while let Some(page) = pace.step(&mut entries).await? {
        for entry in page.entries().iter().filter(|entry| matches(verb, entry)) {
            number += 1;
            oldest = oldest.max(Some(entry.age()));
        }
        output.progress(&format!("{} match …", count(number)));
    }
    output.progress("");
    Ok((number, oldest))
}

async fn remove(engine: &Engine, verb: &Purge, output: &Output) -> Result<Done, Failure> {
    let mut entries = entries(engine, verb);
    let mut scan = Pace::new(verb.scan.rate, STEP);
    // Spread within the second, in small groups.
    let mut pace = Pace::new(verb.purge_rate, u32::try_from(AT_ONCE).unwrap_or(1));
    let mut done = Done::default();
    let mut step = scan.step(&mut entries).await;
    loop {
        let page = match step {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(error) => return Err(interrupted(error.into(), done)),
        };
        let mut found: Vec<_> = page
            .into_entries()
            .into_iter()
            .filter(|entry| matches(verb, entry))
            .collect();
        while !found.is_empty() {
            pace.wait().await;
            let group = found.split_off(found.len().saturating_sub(AT_ONCE));
            group_removed(group, &mut done)
                .await
                .map_err(|error| interrupted(error.into(), done))?;
            output.progress(&format!("{} removed …", count(done.removed)));
        }
        step = scan.step(&mut entries).await;
    }
    output.progress("");
    Ok(done)
}

async fn group_removed(group: Vec<Entry>, done: &mut Done) -> Result<(), Error> {
    let mut removals = JoinSet::new();
    for entry in group {
        removals.spawn(entry.expire());
    }
    let mut failed = Ok(());
    while let Some(removed) = removals.join_next().await {
        match removed {
            Ok(Ok(())) => done.removed += 1,
            Ok(Err(error)) => match error.kind() {
                ErrorKind::Changed { .. } | ErrorKind::Running { .. } => done.changed += 1,
                _ => failed = Err(error),
            },
            // A removal is a future of the library, and is not aborted.
            Err(_) => done.changed += 1,
        }
    }
    failed
}

fn interrupted(failure: Failure, done: Done) -> Failure {
    let removed = count(done.removed);
    Failure::store(format!("{failure}; {removed} records were removed before: repeat the command"))
}

async fn expired(connected: &Connected, verb: &Purge, output: &Output) -> Result<ExitCode, Failure> {
    if verb.dry_run {
        return Err(Failure::usage("--expired has no --dry-run: such rows have no effect on any call"));
    }
    confirm(verb.yes, "Delete the rows of expired records, which no call reads any more?")?;
    let deleted = connected.purge_expired().await?;
    if output.json {
        output.document(&json!({ "deleted": deleted }))?;
    } else {
        output.text(|out| match deleted {
            Some(deleted) => writeln!(out, "{} expired rows deleted", count(deleted)),
            None => writeln!(out, "nothing to do: Redis deletes expired records itself"),
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
