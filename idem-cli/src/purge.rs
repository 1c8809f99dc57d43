//! `idem purge`: the records of an operation that match are reset and expire, one compare-and-set each.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use idem_runtime::admin::{Entries, Entry, EntryState};
use idem_runtime::{Engine, Error, ErrorKind};
use serde_json::json;
use tokio::task::JoinSet;

use crate::Session;
use crate::arguments::Purge;
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::output::{self, Progress};
use crate::pace::{MOST, Pace};
use crate::record;
use crate::text::{count, duration, records};

/// What a purge has done.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    removed: u64,
    /// Records that a call claimed or changed between the listing and the removal.
    changed: u64,
}

pub(crate) async fn run(session: &Session, verb: &Purge) -> Result<ExitCode, Failure> {
    if verb.expired {
        return expired(session, verb).await;
    }
    let engine = &session.engine;
    let operation = verb.operation.clone().unwrap_or_default();
    let mut expected = None;
    if verb.dry_run || !verb.consent.yes {
        let (number, oldest) = matching(engine, verb).await?;
        expected = Some(number);
        if !session.json {
            output::text(|out| {
                let oldest = oldest.map_or_else(String::new, |age| {
                    format!(", the oldest {} old", duration(age))
                });
                writeln!(out, "{} of `{operation}` match{oldest}", records(number))
            })?;
        }
        if number == 0 || verb.dry_run {
            if session.json {
                output::document(&json!({ "matching": number, "removed": 0, "changed": 0 }))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let question = "Remove them? The next call of each key runs its body: if its effect has happened, it happens again";
        confirm(verb.consent.yes, question)?;
    }
    let done = remove(engine, verb).await?;
    if session.json {
        output::document(&json!({
            "matching": expected,
            "removed": done.removed,
            "changed": done.changed,
        }))?;
    } else {
        output::text(|out| {
            write!(
                out,
                "{} removed; what is left of a record expires in 10 seconds",
                records(done.removed)
            )?;
            if done.changed > 0 {
                write!(out, "; {} changed meanwhile and stay", count(done.changed))?;
            }
            writeln!(out)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn entries(engine: &Engine, verb: &Purge, scan: &Pace) -> Entries {
    let entries = record::entries(engine, verb.operation.as_ref(), verb.state);
    entries.page_size(MOST).step_size(scan.step_size())
}

/// Whether a record is to be removed.
fn matches(verb: &Purge, entry: &Entry) -> bool {
    let state = match entry.state() {
        EntryState::Running { .. } => false,
        EntryState::Answered(_) | EntryState::Released => true,
        _ => verb.state.is_some(),
    };
    state
        && verb.older_than.is_none_or(|age| entry.age() >= age)
        && verb.state.is_none_or(|state| state.is_of(entry))
}

/// How many records match, and the age of the oldest.
async fn matching(engine: &Engine, verb: &Purge) -> Result<(u64, Option<Duration>), Failure> {
    let mut scan = Pace::new(verb.scan.rate);
    let mut entries = entries(engine, verb, &scan);
    let mut progress = Progress::new();
    let (mut number, mut oldest) = (0, None);
    while let Some(page) = scan.step(&mut entries).await? {
        for entry in page.entries().iter().filter(|entry| matches(verb, entry)) {
            number += 1;
            oldest = oldest.max(Some(entry.age()));
        }
        progress.show(|| format!("{} match, scanning …", records(number)));
    }
    Ok((number, oldest))
}

async fn remove(engine: &Engine, verb: &Purge) -> Result<Done, Failure> {
    let mut scan = Pace::new(verb.scan.rate);
    let mut entries = entries(engine, verb, &scan);
    // In small groups, spread over the second.
    let mut removals = Pace::new(verb.remove_rate);
    let at_once = removals.step_size();
    let mut progress = Progress::new();
    let mut done = Done::default();
    let mut step = scan.step(&mut entries).await;
    loop {
        let page = match step {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(error) => return Err(interrupted(error, done)),
        };
        let mut found: Vec<_> = page
            .into_entries()
            .into_iter()
            .filter(|entry| matches(verb, entry))
            .collect();
        while !found.is_empty() {
            let began = removals.wait().await;
            let group = found.split_off(found.len().saturating_sub(at_once));
            let group = group.into_iter().map(|entry| verb.consent.sign(entry));
            group_removed(group, &mut done)
                .await
                .map_err(|error| interrupted(error, done))?;
            removals.rest(began, Instant::now());
            progress.show(|| format!("{} removed …", records(done.removed)));
        }
        step = scan.step(&mut entries).await;
    }
    Ok(done)
}

async fn group_removed(group: impl Iterator<Item = Entry>, done: &mut Done) -> Result<(), Error> {
    let mut removals = JoinSet::new();
    for entry in group {
        removals.spawn(entry.expire());
    }
    let mut failed = Ok(());
    while let Some(removed) = removals.join_next().await {
        match removed {
            Ok(Ok(())) => done.removed += 1,
            Ok(Err(error)) => match error.kind() {
                ErrorKind::Changed | ErrorKind::Running { .. } => done.changed += 1,
                _ => failed = Err(error),
            },
            // A removal is a future of the library, and is not aborted.
            Err(_) => done.changed += 1,
        }
    }
    failed
}

fn interrupted(error: Error, done: Done) -> Failure {
    let failure = Failure::from(error);
    let removed = records(done.removed);
    Failure::store(format!(
        "{failure}; {removed} removed before that: repeat the command"
    ))
}

async fn expired(session: &Session, verb: &Purge) -> Result<ExitCode, Failure> {
    if verb.dry_run {
        return Err(Failure::usage(
            "--expired has no --dry-run: such rows have no effect on any call",
        ));
    }
    confirm(
        verb.consent.yes,
        "Delete the rows of expired records, which no call reads any more?",
    )?;
    let deleted = session.connected.durable.purge_expired().await?;
    if session.json {
        output::document(&json!({ "deleted": deleted }))?;
    } else {
        output::text(|out| match deleted {
            Some(deleted) => writeln!(out, "{} expired rows deleted", count(deleted)),
            None => writeln!(out, "nothing to do: Redis deletes expired records itself"),
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
