//! `idem purge`: the records of an operation that match are reset and expire, one compare-and-set each.

use std::time::{Duration, Instant};

use idem_runtime::admin::{Entries, Entry, EntryState};
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::RecordKey;
use idem_runtime::{Error, ErrorKind};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Session;
use crate::arguments::Purge;
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::output;
use crate::pace::Pace;
use crate::text::{count, duration, printed, records};

pub(crate) async fn run(session: &Session, verb: &Purge) -> Result<(), Failure> {
    if verb.expired {
        return expired(session, verb).await;
    }
    let operation = verb.operation.clone().unwrap_or_default();
    let name = (session.connected.durable.abbreviates()).then(|| shared_name(&operation));
    let name = name.flatten();
    if name.is_some() && !verb.abbreviated {
        return Err(Failure::refused(format!(
            "nothing was changed: Redis names records by the first 48 bytes of their operation, with `_` for characters \
             that are no letter, digit or one of `.:_-`, so that others may be listed with `{operation}`; \
             --abbreviated means them as well"
        )));
    }
    let since = Instant::now();
    let mut matching = None;
    if verb.dry_run || !verb.consent.yes {
        let mut scan = Sweep::new(session, verb, since);
        let (mut number, mut oldest) = (0, Duration::ZERO);
        while let Some(found) = scan.next().await? {
            number += found.len() as u64;
            oldest = found.iter().map(Entry::age).fold(oldest, Duration::max);
        }
        drop(scan);
        matching = Some(number);
        let is_last = number == 0 || verb.dry_run;
        if !(session.json && is_last) {
            let oldest = match number {
                0 => String::new(),
                _ => format!(", the oldest {} old", duration(oldest)),
            };
            let of = match &name {
                Some(name) => format!("all operations that Redis lists as `{name}`"),
                None => format!("`{operation}`"),
            };
            let line = format!("{} of {of} match{oldest}", records(number));
            output::beside(session.json, |out| writeln!(out, "{}", printed(&line)))?;
        }
        if is_last {
            if session.json {
                output::document(&document(matching, 0, 0, name.as_deref()))?;
            }
            return Ok(());
        }
        let question = "Remove them? The next call of each key runs its body: if its effect has happened, it happens again";
        confirm(verb.consent.yes, question)?;
    }
    // In small groups, spread over the second. The pace counts removed records.
    let mut removals = Pace::new(verb.remove_rate, "removed");
    let removed = remove(session, verb, since, &mut removals).await;
    let removed_by_now = removals.records;
    drop(removals);
    let changed = removed.map_err(|error| {
        let (failure, removed) = (Failure::from(error), records(removed_by_now));
        Failure::store(format!(
            "{failure}; {removed} removed before that: repeat the command"
        ))
    })?;
    if session.json {
        return output::document(&document(
            matching,
            removed_by_now,
            changed,
            name.as_deref(),
        ));
    }
    let changed = match changed {
        0 => String::new(),
        changed => format!("; {} changed meanwhile and stay", count(changed)),
    };
    let removed = records(removed_by_now);
    let of = name.map_or_else(String::new, |name| {
        format!(" of all operations listed as `{name}`")
    });
    output::text(|out| {
        writeln!(
            out,
            "{removed}{of} removed; what is left of a record expires in 10 seconds{changed}"
        )
    })
}

fn document(matching: Option<u64>, removed: u64, changed: u64, name: Option<&str>) -> Value {
    json!({ "matching": matching, "removed": removed, "changed": changed, "abbreviated": name })
}

/// The operation's shared part of a record's name in Redis.
fn shared_name(operation: &str) -> Option<String> {
    let name = |operation: String| {
        let digest = KeyDigest::from_bytes([0; 32]);
        let name = RecordKey::new("".into(), Operation::new(operation), digest).name();
        let (name, _) = name[1..].rsplit_once(':')?;
        Some(name.to_owned())
    };
    let short = name(operation.to_owned())?;
    let is_cut = name(format!("{operation}+"))? == short;
    (is_cut || short != operation).then_some(short)
}

/// The records that a purge removes, step by step.
struct Sweep<'a> {
    verb: &'a Purge,
    since: Instant,
    pace: Pace,
    entries: Entries,
}

impl<'a> Sweep<'a> {
    fn new(session: &Session, verb: &'a Purge, since: Instant) -> Self {
        let pace = Pace::new(verb.scan.rate, "found");
        let entries = session.entries(verb.operation.as_ref(), &pace);
        Self {
            verb,
            since,
            pace,
            entries: verb.filter.of(entries),
        }
    }

    async fn next(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        let Some(page) = self.pace.step(&mut self.entries).await? else {
            return Ok(None);
        };
        let is_removed = |entry: &Entry| is_removed(entry, self.verb, self.since);
        Ok(Some(page.into_iter().filter(is_removed).collect()))
    }
}

/// Whether a purge that began at `since` removes the record.
///
/// A record written later was not counted. On Redis, it may be a record that this purge has reset, and that `SCAN`
/// returns again.
fn is_removed(entry: &Entry, verb: &Purge, since: Instant) -> bool {
    // Both are durations: the clocks of the store and of this process are not compared.
    if entry.age() < since.elapsed() {
        return false;
    }
    match entry.state() {
        EntryState::Running { .. } => false,
        EntryState::Answered(_) | EntryState::Released => verb.filter.matches(entry),
        _ => verb.filter.state.is_some() && verb.filter.matches(entry),
    }
}

/// Removes the records. Returns the number of records that changed between the listing and the removal.
async fn remove(
    session: &Session,
    verb: &Purge,
    since: Instant,
    removals: &mut Pace,
) -> Result<u64, Error> {
    let mut scan = Sweep::new(session, verb, since);
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

async fn expired(session: &Session, verb: &Purge) -> Result<(), Failure> {
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
        output::document(&json!({ "deleted": deleted }))
    } else {
        output::text(|out| match deleted {
            Some(deleted) => writeln!(out, "{} expired rows deleted", count(deleted)),
            None => writeln!(out, "nothing to do: Redis deletes expired records itself"),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use idem_runtime::Engine;
    use idem_runtime::store::memory::MemoryStore;

    use super::*;
    use crate::arguments::{Arguments, Verb};

    #[tokio::test]
    async fn a_record_that_was_written_since_the_count_stays() {
        let purge = Arguments::parse_from(["idem", "purge", "payments.pay"]);
        let Verb::Purge(purge) = purge.verb else {
            unreachable!();
        };
        // More than the store rounds.
        let before = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let engine = Engine::builder(MemoryStore::new()).build().unwrap();
        let call = || engine.operation("payments.pay").key("o-1");
        let answer = call().run(|_| async { Ok::<_, Error>(()) }).await;
        answer.unwrap();
        let entry = call().entry().await.unwrap().unwrap();
        assert!(!is_removed(&entry, &purge, before));
        // No time has passed since.
        assert!(is_removed(
            &entry,
            &purge,
            before + Duration::from_secs(3_600)
        ));
    }
}
