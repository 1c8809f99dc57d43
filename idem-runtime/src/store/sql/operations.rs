//! The operations on a record after its claim: one statement, and compare-and-set if the record has changed.

use std::sync::Arc;

use bytes::Bytes;

use super::argument::SqlArgument;
use super::columns::{HeaderColumns, NO_FINGERPRINT, life_us, stored_body};
use super::compare_and_write::{RecordAccess, RecordWrite};
use super::pool::ConnectionPool;
use super::queue::Priority;
use super::state::SqlStoreState;
use crate::identity::operation::RecordKey;
use crate::record::{HEADER, Header, Journal, JournalKind, Owner, Record, transition};
use crate::store::{
    AppendReply, CompleteReply, Current, ReadReply, ReleaseReply, Remains, RenewReply,
    ResolveReply, StoreError,
};

const RELEASED_AT_LEAST_MS: i64 = transition::RELEASED_AT_LEAST.as_secs().cast_signed() * 1_000;

impl SqlStoreState {
    pub(super) async fn complete(
        &self,
        key: &RecordKey,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        let finished = match Record::decode(record.clone()) {
            Ok(finished) => finished,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let access = RecordAccess::new(&self.pool, ("a completion", Priority::Ending), key);
        let done = &finished.header;
        let columns = HeaderColumns::new(done);
        let [_, state, owner, fence, attempts, detail, retain, print] = columns.all();
        let key = SqlArgument::Bytes(&access.primary_key);
        let body = stored_body(done, &record[HEADER..]);
        let life = SqlArgument::Int(life_us(columns.retain));
        let arguments = [
            key, state, detail, retain, body, life, owner, fence, attempts, print,
        ];
        // An unknown outcome is rare, and keeps the steps of the record.
        if !done.is_done_unknown() {
            let statement = if done.journal.is_none() {
                &self.statements.complete
            } else {
                &self.statements.complete_with_attempts
            };
            if access.changes(statement, &arguments).await? {
                return Ok(CompleteReply::Stored { late: false });
            }
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::complete(current, &finished);
            (reply, write.map(RecordWrite::record))
        };
        let unreadable = CompleteReply::Unreadable;
        let reply = Box::pin(self.compare_and_write(&access, None, decide, unreadable)).await?;
        if let CompleteReply::Adopted { record, left } = &reply {
            Box::pin(self.ensure_logged(&access, record, *left)).await?;
        }
        Ok(reply)
    }

    pub(super) async fn renew_on(
        &self,
        pool: &Arc<ConnectionPool>,
        key: &RecordKey,
        claim: &Header,
    ) -> Result<RenewReply, StoreError> {
        let access = RecordAccess::new(pool, ("a renewal", Priority::Ending), key);
        let columns = HeaderColumns::new(claim);
        let [_, _, owner, fence, _, _, retain, _] = columns.all();
        let key = SqlArgument::Bytes(&access.primary_key);
        let arguments = [
            key,
            SqlArgument::Int(life_us(claim.retain)),
            owner,
            fence,
            retain,
        ];
        if access.changes(&self.statements.renew, &arguments).await? {
            return Ok(RenewReply::Renewed);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::renew(current, claim);
            let write = write.map(|header| RecordWrite::header(header, current));
            (reply, write)
        };
        let unreadable = RenewReply::Unreadable;
        Box::pin(self.compare_and_write(&access, None, decide, unreadable)).await
    }

    /// Writes the whole journal, whatever the record has of it: a column of bytes grows by being written.
    pub(super) async fn append(
        &self,
        key: &RecordKey,
        claim: &Header,
        journal: &Journal,
        known: usize,
    ) -> Result<AppendReply, StoreError> {
        // Nothing new: a renewal, on the engine's own thread.
        let pool = if known == journal.as_bytes().len() {
            &self.engine_pool
        } else {
            &self.pool
        };
        let access = RecordAccess::new(pool, ("an append", Priority::Ending), key);
        let columns = HeaderColumns::new(claim);
        let arguments = append_arguments(&access.primary_key, &columns, journal);
        if access.changes(&self.statements.append, &arguments).await? {
            return Ok(AppendReply::Appended);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::append(current, claim, journal);
            let write = write.map(|(header, journal)| RecordWrite {
                body: journal.as_bytes().clone(),
                ..RecordWrite::header(header, None)
            });
            (reply, write)
        };
        let unreadable = AppendReply::Unreadable;
        Box::pin(self.compare_and_write(&access, None, decide, unreadable)).await
    }

    /// Releases a claim. `journals`: that for the record, and that seen by the caller.
    pub(super) async fn release(
        &self,
        key: &RecordKey,
        owner: &Owner,
        remains: Remains,
        journals: Option<(&Journal, Option<&Journal>)>,
    ) -> Result<ReleaseReply, StoreError> {
        let access = RecordAccess::new(&self.pool, ("a release", Priority::Ending), key);
        let mut arguments = release_arguments(&access.primary_key, owner, remains);
        let released = match journals {
            None => {
                let statement = &self.statements.release;
                access.changes(statement, &arguments[..6]).await?
            }
            Some((journal, None)) if journal.kind() == JournalKind::Attempts => {
                arguments[6] = SqlArgument::Bytes(journal.as_bytes());
                let statement = &self.statements.release_with_attempts;
                access.changes(statement, &arguments).await?
            }
            // With steps, and for an operator, the journal is read, and replaced.
            Some(_) => false,
        };
        if released {
            return Ok(ReleaseReply::Released);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let kept = current.map(|current| current.record.journal());
            let kept = kept.unwrap_or_default();
            let (journal, seen) = journals.unwrap_or((&kept, None));
            let (reply, write) =
                transition::release_with_journal(current, *owner, remains, journal, seen);
            let write = current.zip(write).map(|(current, record)| RecordWrite {
                life: transition::released_life(&current.record.header, remains),
                ..RecordWrite::record(record)
            });
            (reply, write)
        };
        let unreadable = ReleaseReply::Unreadable;
        Box::pin(self.compare_and_write(&access, None, decide, unreadable)).await
    }

    pub(super) async fn resolve(
        &self,
        key: &RecordKey,
        (seen, journal): (&Header, Option<&Journal>),
        record: &Bytes,
    ) -> Result<ResolveReply, StoreError> {
        let new = match Record::decode(record.clone()) {
            Ok(new) => new,
            Err(error) => return Ok(ResolveReply::Unreadable(error)),
        };
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::resolve(current, seen, journal, &new);
            (reply, write.map(RecordWrite::record))
        };
        let access = RecordAccess::new(&self.pool, ("a resolution", Priority::Ending), key);
        self.compare_and_write(&access, None, decide, ResolveReply::Unreadable)
            .await
    }

    pub(super) async fn read(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        let decide = |current: Option<Current<'_>>, _| {
            let reply = current.map_or(ReadReply::Absent, |Current { record, left }| {
                ReadReply::Found {
                    record: record.clone(),
                    left,
                }
            });
            (reply, None)
        };
        let access = RecordAccess::new(&self.engine_pool, ("a read", Priority::Other), key);
        let reply = self.compare_and_write(&access, None, decide, ReadReply::Unreadable);
        let reply = reply.await?;
        if let ReadReply::Found { record, left } = &reply {
            self.ensure_logged(&access, record, *left).await?;
        }
        Ok(reply)
    }
}

/// The arguments of an append. `columns` are those of the claim.
pub(super) fn append_arguments<'a>(
    primary_key: &'a [u8],
    columns: &'a HeaderColumns,
    journal: &'a Journal,
) -> [SqlArgument<'a>; 7] {
    let [_, _, owner, fence, _, _, retain, _] = columns.all();
    let (key, bytes) = (SqlArgument::Bytes(primary_key), journal.as_bytes());
    let life = SqlArgument::Int(life_us(columns.retain));
    let len = SqlArgument::Int(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    let body = SqlArgument::Bytes(bytes);
    [key, life, owner, fence, retain, body, len]
}

/// The arguments of a release; the last one is that of a journal.
fn release_arguments<'a>(
    primary_key: &'a [u8],
    owner: &'a Owner,
    remains: Remains,
) -> [SqlArgument<'a>; 7] {
    [
        SqlArgument::Bytes(primary_key),
        SqlArgument::Bytes(owner.as_bytes()),
        SqlArgument::Int(i64::from(!remains.counts())),
        // Nothing remains of a record with no more attempts than this: it loses its fingerprint, its types with it,
        // and lives for its lease, at least for the next but one of these arguments.
        SqlArgument::Int(if remains == Remains::Nothing { 1 } else { -1 }),
        SqlArgument::Bytes(&NO_FINGERPRINT),
        SqlArgument::Int(RELEASED_AT_LEAST_MS),
        SqlArgument::Null,
    ]
}
