//! The steps of a call: those of earlier attempts, and those of this one. Without I/O.

use std::collections::{HashMap, HashSet};
use std::sync::{MutexGuard, OnceLock};
use std::task::Waker;

use bytes::Bytes;

use crate::env::lock::Lock;
use crate::record::journal::{BrokenJournal, EntryKind, JournalEntry, StepDigest};
use crate::record::{Journal, JournalKind};

/// The highest number of different steps of a call.
pub(crate) const MAX_STEPS: usize = 64;

/// The longest journal, in bytes.
pub(crate) const MAX_JOURNAL_BYTES: usize = 256 << 10;

/// The steps of a call; nothing for a call without steps.
#[derive(Default)]
pub(crate) struct StepLog(OnceLock<Box<StepLogState>>);

#[derive(Default)]
struct StepLogState {
    log: Lock<Log>,
    /// Held while the journal is sent: appends go one after the other, each with all that has been added since.
    sending: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Log {
    /// The journal: entries of earlier attempts, then those of this one.
    bytes: Vec<u8>,
    /// So many of its bytes are in the store.
    known: usize,
    /// The last entry of each step of earlier attempts.
    earlier: HashMap<StepDigest, JournalEntry>,
    broken: Option<BrokenJournal>,
    /// Whether the record remembers earlier attempts.
    has_attempts: bool,
    /// The origin of the names of steps in transactions.
    #[cfg(feature = "_sql")]
    origin: Option<StepDigest>,
    /// The steps that this attempt has asked for.
    asked: HashSet<StepDigest>,
    /// idem has refused a step: the end of the body is no answer unless it is a success.
    has_refused: bool,
    /// The body must not continue.
    stop: Option<StepStop>,
    /// Wakes the task of the body.
    body: Option<Waker>,
}

/// Why a body must not continue at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepStop {
    /// It is not known whether an earlier attempt had the step's effect.
    Unknown,
    /// Neither does its hook know at this time.
    Undecided,
}

/// Why a step cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unstartable {
    /// This attempt has had a step of this name.
    Repeated,
    /// The call has as many steps as it may have.
    TooMany,
    /// The journal is full.
    Full,
    /// The journal cannot be read.
    Broken(BrokenJournal),
}

impl StepLog {
    /// Takes over the journal of earlier attempts.
    pub(crate) fn inherit(&self, journal: &Journal) {
        if journal.is_empty() {
            return;
        }
        let mut log = Log::default();
        for entry in journal.entries() {
            match entry {
                Ok(entry) if entry.kind == EntryKind::Origin => {
                    #[cfg(feature = "_sql")]
                    {
                        log.origin = Some(entry.step);
                    }
                }
                Ok(entry) if entry.kind.is_history() => log.has_attempts = true,
                Ok(entry) if !entry.kind.is_step() => {}
                Ok(entry) if entry.kind == EntryKind::Void => {
                    log.earlier.remove(&entry.step);
                }
                Ok(entry) => {
                    log.earlier.insert(entry.step, entry);
                }
                Err(error) => log.broken = Some(error),
            }
        }
        log.bytes = journal.as_bytes().to_vec();
        log.known = log.bytes.len();
        let state = StepLogState {
            log: Lock::new(log),
            ..StepLogState::default()
        };
        // A claim is granted once; a claim anew after a reconciliation has the same journal.
        let _ = self.0.set(Box::new(state));
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.get_or_init(Box::default).log.lock()
    }

    fn there(&self) -> Option<MutexGuard<'_, Log>> {
        Some(self.0.get()?.log.lock())
    }

    /// Begins a step whose first entry has at least this many bytes. The journal has at most `max_bytes`. Returns its
    /// last entry, if an earlier attempt has recorded it.
    pub(crate) fn enter(
        &self,
        step: StepDigest,
        least_bytes: usize,
        max_bytes: usize,
    ) -> Result<Option<JournalEntry>, Unstartable> {
        let mut log = self.lock();
        if let Some(broken) = log.broken {
            return Err(Unstartable::Broken(broken));
        }
        if log.asked.contains(&step) {
            return Err(Unstartable::Repeated);
        }
        let found = log.earlier.get(&step).cloned();
        let is_finished = found.as_ref().is_some_and(|entry| entry.kind.is_end());
        if !is_finished {
            let unasked =
                (log.earlier.keys()).filter(|other| !log.asked.contains(*other) && **other != step);
            if log.asked.len() + unasked.count() >= MAX_STEPS {
                return Err(Unstartable::TooMany);
            }
            if log.bytes.len() + least_bytes > max_bytes {
                return Err(Unstartable::Full);
            }
        }
        log.asked.insert(step);
        Ok(found)
    }

    /// The length of the journal, with its unsent entries.
    pub(crate) fn len(&self) -> usize {
        self.there().map_or(0, |log| log.bytes.len())
    }

    /// Whether an earlier attempt began the step, or left its outcome unknown.
    pub(crate) fn is_inherited(&self, step: &StepDigest) -> bool {
        let log = self.there();
        let earlier = log.as_ref().and_then(|log| log.earlier.get(step));
        earlier.is_some_and(|entry| matches!(entry.kind, EntryKind::Begun | EntryKind::Unknown))
    }

    /// Records that idem has refused a step.
    pub(crate) fn refused(&self) {
        self.lock().has_refused = true;
    }

    /// Whether idem has refused a step.
    pub(crate) fn has_refused(&self) -> bool {
        self.there().is_some_and(|log| log.has_refused)
    }

    /// Adds an entry, which is not in the store yet. Returns the length of the journal with it.
    pub(crate) fn add(&self, entry: &JournalEntry) -> usize {
        let mut log = self.lock();
        entry.write(&mut log.bytes);
        log.bytes.len()
    }

    /// The origin of the names of steps in transactions: the recorded one, or else that of `new`, which is added.
    #[cfg(feature = "_sql")]
    pub(crate) fn origin(&self, new: &JournalEntry) -> StepDigest {
        let mut log = self.lock();
        if let Some(origin) = log.origin {
            return origin;
        }
        new.write(&mut log.bytes);
        log.origin = Some(new.step);
        new.step
    }

    /// The turn to send the journal.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.get_or_init(Box::default).sending.lock().await
    }

    /// The whole journal, and the number of its stored bytes.
    pub(crate) fn journal(&self) -> (Journal, usize) {
        match self.there() {
            Some(log) => (Journal::new(Bytes::copy_from_slice(&log.bytes)), log.known),
            None => (Journal::default(), 0),
        }
    }

    /// The journal that a regular end of the attempt leaves; `None` for a first attempt without steps.
    pub(crate) fn released(&self) -> Option<Journal> {
        let log = self.there()?;
        let journal = Journal::new(Bytes::copy_from_slice(&log.bytes));
        drop(log);
        (!journal.is_empty()).then(|| journal.compacted())
    }

    /// The part of the journal that is in the store; empty for a call without steps.
    pub(crate) fn confirmed(&self) -> Journal {
        match self.there() {
            Some(log) if log.known > 0 => {
                let journal = Journal::new(Bytes::copy_from_slice(&log.bytes[..log.known]));
                match journal.kind() {
                    JournalKind::Steps => journal,
                    _ => Journal::default(),
                }
            }
            _ => Journal::default(),
        }
    }

    /// The attempts that the record remembers; empty for a first attempt.
    pub(crate) fn attempts(&self) -> Journal {
        match self.there() {
            Some(log) if log.has_attempts => {
                Journal::new(Bytes::copy_from_slice(&log.bytes)).attempts()
            }
            _ => Journal::default(),
        }
    }

    /// Whether the store lacks entries.
    pub(crate) fn is_unsent(&self) -> bool {
        self.there().is_some_and(|log| log.known < log.bytes.len())
    }

    /// How many bytes are in the store.
    pub(crate) fn known(&self) -> usize {
        self.there().map_or(0, |log| log.known)
    }

    pub(crate) fn known_kind(&self) -> JournalKind {
        match self.there() {
            Some(log) if log.known > 0 => JournalKind::Steps,
            _ => JournalKind::None,
        }
    }

    /// Records that the store has so many bytes.
    pub(crate) fn confirm(&self, bytes: usize) {
        let mut log = self.lock();
        log.known = log.known.max(bytes);
    }

    /// Records that the store has nothing.
    pub(crate) fn unconfirm(&self) {
        self.lock().known = 0;
    }

    /// Labels of earlier finished steps that this attempt has not run.
    pub(crate) fn unused(&self) -> Vec<String> {
        let Some(log) = self.there() else {
            return Vec::new();
        };
        let unused = log.earlier.values().filter(|entry| {
            matches!(
                entry.kind,
                EntryKind::Value | EntryKind::Error | EntryKind::Tombstone
            ) && !log.asked.contains(&entry.step)
        });
        let mut labels: Vec<_> = unused.map(|entry| entry.label.clone()).collect();
        labels.sort_unstable();
        labels
    }

    /// Ends the body, and wakes its task.
    pub(crate) fn stop(&self, stop: StepStop) {
        let mut log = self.lock();
        log.stop = Some(stop);
        let body = log.body.take();
        drop(log);
        if let Some(body) = body {
            body.wake();
        }
    }

    /// Why the body must not continue, if that is so. `body` is woken when that happens later.
    pub(crate) fn stopped(&self, body: &Waker) -> Option<StepStop> {
        let mut log = self.there()?;
        if log.stop.is_none() && !log.body.as_ref().is_some_and(|known| known.will_wake(body)) {
            log.body = Some(body.clone());
        }
        log.stop
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::identity::fingerprint::Fingerprint;

    fn entry(kind: EntryKind, step: u8) -> JournalEntry {
        JournalEntry {
            kind,
            step: [step; 16],
            at: SystemTime::UNIX_EPOCH,
            schema: 0,
            input: Fingerprint::NONE,
            label: format!("step-{step}"),
            body: Bytes::from_static(b"1"),
        }
    }

    fn inherited(entries: &[JournalEntry]) -> StepLog {
        let mut bytes = Vec::new();
        for entry in entries {
            entry.write(&mut bytes);
        }
        let log = StepLog::default();
        log.inherit(&Journal::new(bytes.into()));
        log
    }

    /// Enters a step whose first entry has at least 50 bytes.
    fn enter(log: &StepLog, step: u8) -> Result<Option<EntryKind>, Unstartable> {
        let found = log.enter([step; 16], 50, MAX_JOURNAL_BYTES)?;
        Ok(found.map(|entry| entry.kind))
    }

    fn finished(steps: u8) -> StepLog {
        let entries: Vec<_> = (0..steps)
            .map(|step| entry(EntryKind::Value, step))
            .collect();
        inherited(&entries)
    }

    #[test]
    fn a_finished_step_is_found_however_full_the_journal_is() {
        let log = finished(64);
        assert_eq!(enter(&log, 3), Ok(Some(EntryKind::Value)));
        assert_eq!(enter(&log, 3), Err(Unstartable::Repeated));
        assert_eq!(enter(&log, 99), Err(Unstartable::TooMany));
        assert_eq!(log.unused().len(), 63);
    }

    /// Finds replayed steps that count twice.
    #[test]
    fn a_step_that_is_replayed_counts_once() {
        let log = finished(40);
        assert!((0..41).all(|step| enter(&log, step).is_ok()));
    }

    #[test]
    fn a_full_journal_refuses_a_step_before_its_effect() {
        let log = inherited(&[entry(EntryKind::Begun, 1)]);
        log.lock().bytes = vec![0; MAX_JOURNAL_BYTES - 49];
        assert_eq!(enter(&log, 1), Err(Unstartable::Full));
        assert!(log.enter([1; 16], 49, MAX_JOURNAL_BYTES).is_ok());
        let log = StepLog::default();
        log.inherit(&Journal::new(Bytes::from_static(b"\0\0\0\x09Z12345678")));
        assert!(matches!(enter(&log, 1), Err(Unstartable::Broken(_))));
    }

    #[test]
    fn entries_are_sent_until_the_store_has_them() {
        let log = StepLog::default();
        assert!(!log.is_unsent());
        let first = log.add(&entry(EntryKind::Value, 1));
        let both = log.add(&entry(EntryKind::Value, 2));
        assert_eq!((log.journal().0.as_bytes().len(), log.known()), (both, 0));
        log.confirm(first);
        assert_eq!(log.confirmed().as_bytes().len(), first);
        assert!(log.is_unsent());
        log.confirm(both);
        log.confirm(first);
        assert!(!log.is_unsent());
    }
}
