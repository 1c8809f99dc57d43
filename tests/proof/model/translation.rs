//! The same operations in the types of the store and in those of the model.

use std::num::NonZeroU16;
use std::time::Duration;

use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{
    self, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, Owner, ReadReply,
    Record, RecordKey, ReleaseReply, Remains, RenewReply, ResolveReply, State, Store,
};

use crate::operation::Print;
use crate::record::{Asked, Entry, Fence, Phase, Reply};

fn owner(number: usize) -> Owner {
    Owner::from_bytes([u8::try_from(number).expect("few owners") + 1; 16])
}

fn print(print: Print) -> Fingerprint {
    print.map_or(Fingerprint::NONE, |n| Fingerprint::from_bytes([n; 16]))
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("a short time")
}

fn header(entry: &Entry) -> Header {
    let mut header = Header::new(
        match entry.phase {
            Phase::Claimed { lease } => State::Pending {
                lease: Duration::from_millis(lease),
            },
            Phase::Looking { lease } => State::Reconciling {
                lease: Duration::from_millis(lease),
            },
            Phase::GivenBack => State::Released,
            Phase::Finished {
                outcome, schema, ..
            } => State::Done { outcome, schema },
        },
        owner(entry.owner),
        store::Fence::new(entry.fence),
        Duration::from_millis(entry.retain),
    );
    header.attempts = entry.attempts;
    header.fingerprint = print(entry.print);
    header.journal = Journal::new(entry.journal.clone().into()).kind();
    header
}

fn entry(record: &Record) -> Entry {
    let header = &record.header;
    let body = record.body().to_vec();
    Entry {
        phase: match header.state {
            State::Pending { lease } if body.is_empty() => Phase::Claimed { lease: ms(lease) },
            State::Reconciling { lease } if body.is_empty() => Phase::Looking { lease: ms(lease) },
            State::Released if body.is_empty() => Phase::GivenBack,
            State::Done { outcome, schema } => Phase::Finished {
                outcome,
                schema,
                body,
            },
            other => panic!("{other:?} with an answer of {} bytes", body.len()),
        },
        owner: usize::from(header.owner.as_bytes()[0]) - 1,
        fence: header.fence.get(),
        attempts: header.attempts,
        retain: ms(header.retain),
        print: Some(header.fingerprint.as_bytes()[0]).filter(|n| *n != 0),
        journal: record.journal().as_bytes().to_vec(),
    }
}

fn odd(reply: impl std::fmt::Debug) -> Reply {
    Reply::Odd(format!("{reply:?}"))
}

pub(crate) async fn claim(store: &dyn Store, key: &RecordKey, asked: &Asked) -> Reply {
    let mut request = ClaimRequest::new(
        owner(asked.owner),
        Duration::from_millis(asked.lease),
        Duration::from_millis(asked.retain),
    );
    request.fingerprint = print(asked.print);
    request.max_attempts = asked.max_attempts.and_then(NonZeroU16::new);
    request.reconciles = asked.reconciles;
    request.dated = asked.dated;
    match store.claim(key, &request).await {
        Ok(ClaimReply::Granted {
            fence,
            attempt,
            fresh,
            journal,
        }) => Reply::Granted {
            journal: journal.as_bytes().to_vec(),
            fresh,
            fence: Fence::Is(fence.get()),
            attempt,
        },
        Ok(ClaimReply::Reconcile {
            fence,
            attempts,
            journal,
        }) => Reply::FindOut {
            journal: journal.as_bytes().to_vec(),
            fence: Fence::Is(fence.get()),
            attempts,
        },
        Ok(ClaimReply::Running { lease_left }) => Reply::Running {
            left: ms(lease_left),
        },
        Ok(ClaimReply::Done { record, left }) => Reply::Answered {
            entry: entry(&record).without_steps(),
            left: ms(left),
        },
        Ok(ClaimReply::Mismatch) => Reply::OtherRequest,
        Ok(ClaimReply::Exhausted { attempts }) => Reply::NoAttempts { attempts },
        other => odd(other),
    }
}

pub(crate) async fn complete(
    store: &dyn Store,
    key: &RecordKey,
    done: &Entry,
    body: &[u8],
) -> Reply {
    let record = [&header(done).encode()[..], body, &done.journal]
        .concat()
        .into();
    match store.complete(key, &record).await {
        Ok(CompleteReply::Stored { late }) => Reply::Stored { late },
        Ok(CompleteReply::Adopted { record, left }) => Reply::Answered {
            entry: entry(&record).without_steps(),
            left: ms(left),
        },
        Ok(CompleteReply::Superseded { lease_left }) => Reply::Overtaken {
            left: ms(lease_left),
        },
        Ok(CompleteReply::Mismatch) => Reply::OtherRequest,
        other => odd(other),
    }
}

pub(crate) async fn release(
    store: &dyn Store,
    key: &RecordKey,
    number: usize,
    remains: Remains,
) -> Reply {
    match store.release(key, &owner(number), remains).await {
        Ok(ReleaseReply::Released) => Reply::Freed,
        Ok(ReleaseReply::Superseded) => Reply::NotYours,
        Ok(ReleaseReply::Absent) => Reply::Nothing,
        other => odd(other),
    }
}

pub(crate) async fn renew(store: &dyn Store, key: &RecordKey, claim: &Entry) -> Reply {
    match store.renew(key, &header(claim)).await {
        Ok(RenewReply::Renewed) => Reply::Renewed,
        Ok(RenewReply::Reasserted) => Reply::WrittenAgain,
        Ok(RenewReply::Lost) => Reply::NotYours,
        other => odd(other),
    }
}

/// `known` bytes of the journal are not sent, if the store can do without them.
pub(crate) async fn append(
    store: &dyn Store,
    key: &RecordKey,
    claim: &Entry,
    known: usize,
) -> Reply {
    let journal = Journal::new(claim.journal.clone().into());
    match store.append(key, &header(claim), &journal, known).await {
        Ok(AppendReply::Appended) => Reply::Appended,
        Ok(AppendReply::Reasserted) => Reply::WrittenAgain,
        Ok(AppendReply::Lost) => Reply::NotYours,
        other => odd(other),
    }
}

pub(crate) async fn resolve(
    store: &dyn Store,
    key: &RecordKey,
    seen: &Entry,
    new: &Entry,
    body: &[u8],
) -> Reply {
    let record = [&header(new).encode()[..], body, &new.journal]
        .concat()
        .into();
    match store.resolve(key, &header(seen), None, &record).await {
        Ok(ResolveReply::Resolved) => Reply::Resolved,
        Ok(ResolveReply::Changed) => Reply::NotThat,
        Ok(ResolveReply::Running { lease_left }) => Reply::Running {
            left: ms(lease_left),
        },
        Ok(ResolveReply::Absent) => Reply::Nothing,
        other => odd(other),
    }
}

pub(crate) async fn read(store: &dyn Store, key: &RecordKey) -> Reply {
    match store.read(key).await {
        Ok(ReadReply::Absent) => Reply::Nothing,
        Ok(ReadReply::Found { record, left }) => Reply::Found {
            entry: entry(&record),
            left: ms(left),
        },
        other => odd(other),
    }
}
