//! A store of one's own, and the tests that it must pass.
//!
//! Its records are in a map under a lock. Of a database the lock is a transaction; a store with
//! compare-and-set in place of a lock is the example `zookeeper_store`.
//!
//! `cargo run -p idem-quickstart --example custom_store` prints:
//!
//! ```text
//! all cases passed, of the rules {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}
//! ```

#![allow(clippy::print_stdout, reason = "the program shows its results")]

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use idem_conformance::{BoxFuture, Fixture, Plant, cases};
use idem_runtime::clock::{Clock, ManualClock};
use idem_runtime::store::author::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Current, Header, Journal,
    Owner, ReadReply, Record, ReleaseReply, Remains, RenewReply, ResolveReply, StoreFuture,
    Unreadable, append, claim, complete, release_with_journal, released_life, renew, resolve,
};
use idem_runtime::store::{RecordKey, Store};

/// Each record with the moment at which it expires.
type Rows = HashMap<RecordKey, (Bytes, Duration)>;

/// `claim`, `complete` and so on decide; the store reads, and writes the header that they return.
#[derive(Clone, Debug, Default)]
struct MapStore {
    rows: Arc<Mutex<Rows>>,
    /// The one clock of all callers, as that of a database server. Here tests move it.
    clock: ManualClock,
}

impl MapStore {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads, decides and writes at one moment.
    fn operate<T>(
        &self,
        key: &RecordKey,
        decide: impl FnOnce(Option<Current<'_>>, u64) -> (T, Option<Write>),
        unreadable: fn(Unreadable) -> T,
    ) -> StoreFuture<'static, T> {
        let (mut rows, now) = (self.rows(), self.clock.now());
        // An expired row stays until its key is claimed again; a real store deletes it some time.
        let alive = rows.get(key).filter(|(_, ends)| *ends > now);
        let record = alive
            .map(|(bytes, ends)| Ok((Record::decode(bytes.clone())?, ends.saturating_sub(now))));
        let record = match record.transpose() {
            Ok(record) => record,
            // Foreign data, or a record of a later version, is not replaced.
            Err(why) => return StoreFuture::ready(Ok(unreadable(why))),
        };
        let current = record
            .as_ref()
            .map(|(record, left)| Current::new(record, *left));
        let (reply, write) = decide(current, self.clock.calendar_us());
        if let Some((record, life)) = write {
            let bytes = Bytes::copy_from_slice(record.as_bytes());
            rows.insert(key.clone(), (bytes, now.saturating_add(life)));
        }
        StoreFuture::ready(Ok(reply))
    }
}

/// A record to write, and how long it then lives.
type Write = (Record, Duration);

/// A record lives as long as its header says.
fn whole(record: Record) -> Write {
    let life = record.header.retain;
    (record, life)
}

/// Another header, with the steps that the record has.
fn rewritten(header: Header, current: Option<Current<'_>>) -> Write {
    let steps = current.map_or_else(Journal::default, |current| current.record.journal());
    whole(Record::with_journal(header, &steps))
}

impl Store for MapStore {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        // Nothing waits in a queue before it is decided.
        admission.sent();
        let decide = |current: Option<Current<'_>>, now| {
            let (reply, write) = claim(current, request, now);
            (reply, write.map(whole))
        };
        self.operate(key, decide, ClaimReply::Unreadable)
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        _: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        let finished = match Record::decode(record.clone()) {
            Ok(finished) => finished,
            Err(why) => return StoreFuture::ready(Ok(CompleteReply::Unreadable(why))),
        };
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = complete(current, &finished);
            (reply, write.map(whole))
        };
        self.operate(key, decide, CompleteReply::Unreadable)
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journals: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply> {
        let decide = |current: Option<Current<'_>>, _| {
            let kept = current.map_or_else(Journal::default, |there| there.record.journal());
            let (journal, seen) = journals.unwrap_or((&kept, None));
            let (reply, write) = release_with_journal(current, *owner, remains, journal, seen);
            let write = current.zip(write).map(|(there, record)| {
                // A release shortens the life of a record, or leaves it.
                let shortened = released_life(&there.record.header, remains);
                (record, shortened.unwrap_or(there.left))
            });
            (reply, write)
        };
        self.operate(key, decide, ReleaseReply::Unreadable)
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, held: &'a Header) -> StoreFuture<'a, RenewReply> {
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = renew(current, held);
            (reply, write.map(|header| rewritten(header, current)))
        };
        self.operate(key, decide, RenewReply::Unreadable)
    }

    fn keeps_journals(&self) -> bool {
        true
    }

    fn append<'a>(
        &'a self,
        key: &'a RecordKey,
        held: &'a Header,
        journal: &'a Journal,
        _known: usize,
    ) -> StoreFuture<'a, AppendReply> {
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = append(current, held, journal);
            let write = write.map(|(header, steps)| whole(Record::with_journal(header, &steps)));
            (reply, write)
        };
        self.operate(key, decide, AppendReply::Unreadable)
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        let new = match Record::decode(record.clone()) {
            Ok(new) => new,
            Err(why) => return StoreFuture::ready(Ok(ResolveReply::Unreadable(why))),
        };
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = resolve(current, seen, journal, &new);
            (reply, write.map(whole))
        };
        self.operate(key, decide, ResolveReply::Unreadable)
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        let decide = |current: Option<Current<'_>>, _| {
            let found = current.map(|Current { record, left, .. }| ReadReply::Found {
                record: record.clone(),
                left,
            });
            (found.unwrap_or(ReadReply::Absent), None)
        };
        self.operate(key, decide, ReadReply::Unreadable)
    }
}

/// The access of a test: the store's time, and its raw rows.
impl Fixture for MapStore {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn prefix(&self) -> Arc<str> {
        "test".into()
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(by);
        Box::pin(async {})
    }

    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
        // This store cannot hold anything but bytes that expire.
        let Plant::Bytes { bytes, life } = plant else {
            return Box::pin(async { false });
        };
        self.rows()
            .insert(key.clone(), (bytes.into(), self.clock.now() + life));
        Box::pin(async { true })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        let row = self.rows().get(key).cloned();
        let alive = row.filter(|(_, ends)| *ends > self.clock.now());
        Box::pin(async { alive.map(|(bytes, _)| bytes.into()) })
    }
}

#[tokio::main]
async fn main() {
    let mut rules = BTreeSet::new();
    for case in cases() {
        // A case panics, with the reason, if the store breaks its rule.
        (case.run)(Arc::new(MapStore::default())).await;
        rules.insert(case.rule);
    }
    println!("all cases passed, of the rules {rules:?}");
}
