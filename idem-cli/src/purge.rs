//! `idem purge`: the records of an operation that match are reset and expire, one compare-and-set each.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use idem_runtime::admin::{Entries, Entry, EntryState};
use idem_runtime::{Error, ErrorKind};
use serde_json::json;
use tokio::task::JoinSet;

use crate::Session;
use crate::arguments::Purge;
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::output;
use crate::pace::Pace;
use crate::text::{count, duration, records};

pub(crate) async fn run(session: &Session, verb: &Purge) -> Result<ExitCode, Failure> {
    if verb.expired {
        return expired(session, verb).await;
    }
    let operation = verb.operation.clone().unwrap_or_default();
    let mut matching = None;
    if verb.dry_run || !verb.consent.yes {
        let mut scan = Sweep::new(session, verb);
        let (mut number, mut oldest) = (0, Duration::ZERO);
        while let Some(found) = scan.next().await? {
            number += found.len() as u64;
            oldest = found.iter().map(Entry::age).fold(oldest, Duration::max);
        }
        drop(scan);
        matching = Some(number);
        if !session.json {
            let oldest = match number {
                0 => String::new(),
                _ => format!(", the oldest {} old", duration(oldest)),
            };
            let number = records(number);
            output::text(|out| writeln!(out, "{number} of `{operation}` match{oldest}"))?;
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
    // In small groups, spread over the second. The pace counts removed records.
    let mut removals = Pace::new(verb.remove_rate, "removed");
    let removed = remove(session, verb, &mut removals).await;
    let removed_by_now = removals.records;
    drop(removals);
    let changed = removed.map_err(|error| {
        let (failure, removed) = (Failure::from(error), records(removed_by_now));
        Failure::store(format!(
            "{failure}; {removed} removed before that: repeat the command"
        ))
    })?;
    if session.json {
        output::document(&json!({
            "matching": matching,
            "removed": removed_by_now,
            "changed": changed,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let changed = match changed {
        0 => String::new(),
        changed => format!("; {} changed meanwhile and stay", count(changed)),
    };
    let removed = records(removed_by_now);
    output::text(|out| {
        writeln!(
            out,
            "{removed} removed; what is left of a record expires in 10 seconds{changed}"
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The records that a purge removes, step by step.
struct Sweep<'a> {
    verb: &'a Purge,
    pace: Pace,
    entries: Entries,
}

impl<'a> Sweep<'a> {
    fn new(session: &Session, verb: &'a Purge, since: Instant) -> Self {
        let pace = Pace::new(verb.scan.rate, "found");
        let entries = session.entries(verb.operation.as_ref(), &pace);
        Self {
            verb,
            pace,
            entries: verb.filter.of(entries),
        }
    }

    async fn next(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        let Some(page) = self.pace.step(&mut self.entries).await? else {
            return Ok(None);
        };
        let filter = &self.verb.filter;
        let is_removed = |entry: &Entry| match entry.state() {
            EntryState::Running { .. } => false,
            EntryState::Answered(_) | EntryState::Released => filter.matches(entry),
            _ => filter.state.is_some() && filter.matches(entry),
        };
        Ok(Some(page.into_iter().filter(is_removed).collect()))
    }
}

/// Removes the records. Returns the number of records that changed between the listing and the removal.
async fn remove(session: &Session, verb: &Purge, removals: &mut Pace) -> Result<u64, Error> {
    let mut scan = Sweep::new(session, verb);
    let mut changed = 0;
    while let Some(mut found) = scan.next().await? {
        while !found.is_empty() {
            let began = removals.wait().await;
            let at_most = removals.step_size().min(found.len());
            let group = found.drain(..at_most);
            let mut group: JoinSet<_> = group
                .map(|entry| verb.consent.sign(entry).expire())
                .collect();
            let mut failed = Ok(());
            while let Some(removed) = group.join_next().await {
                match removed {
                    Ok(Ok(())) => removals.records += 1,
                    Ok(Err(error)) => match error.kind() {
                        ErrorKind::Changed | ErrorKind::Running { .. } => changed += 1,
                        _ => failed = Err(error),
                    },
                    // A removal is a future of the library, and is not aborted.
                    Err(_) => changed += 1,
                }
            }
            failed?;
            removals.rest(began, Instant::now());
        }
    }
    Ok(changed)
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
