//! A release: one statement, unless the record has changed.

use super::argument::Argument;
use super::backend::SqlDriver;
use super::columns::NO_FINGERPRINT;
use super::compare_and_write::{RecordAccess, RecordWrite};
use super::priority::Priority;
use super::state::SqlStoreState;
use crate::identity::operation::RecordKey;
use crate::record::{Journal, JournalKind, Owner, transition};
use crate::store::{Current, ReleaseReply, Remains, StoreError};

const RELEASED_AT_LEAST_MS: i64 = transition::RELEASED_AT_LEAST.as_secs().cast_signed() * 1_000;

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn release(
        &self,
        key: &RecordKey,
        owner: &Owner,
        remains: Remains,
    ) -> Result<ReleaseReply, StoreError> {
        let access = RecordAccess::new(&self.pool, ("a release", Priority::Ending), key);
        let arguments = arguments(&access.primary_key, owner, remains);
        let statement = &self.statements.release;
        let answer = access.run(statement, &arguments).await?;
        if answer.affected > 0 {
            return Ok(ReleaseReply::Released);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::release(current, *owner, remains);
            let write = current.zip(write).map(|(current, header)| RecordWrite {
                life: transition::released_life(&current.record.header, remains),
                ..RecordWrite::header(header, Some(current))
            });
            (reply, write)
        };
        let unreadable = ReleaseReply::Unreadable;
        Box::pin(self.compare_and_write(&access, None, decide, unreadable)).await
    }

    /// The same, with the journal that the record keeps. With steps, and for an operator, it is read, and replaced.
    pub(super) async fn release_with_journal(
        &self,
        key: &RecordKey,
        owner: &Owner,
        remains: Remains,
        journal: &Journal,
        seen: Option<&Journal>,
    ) -> Result<ReleaseReply, StoreError> {
        let access = RecordAccess::new(&self.pool, ("a release", Priority::Ending), key);
        if journal.kind() == JournalKind::Attempts && seen.is_none() {
            let mut arguments = Vec::from(arguments(&access.primary_key, owner, remains));
            arguments.push(Argument::Body(Some(journal.as_bytes())));
            let statement = &self.statements.release_with_attempts;
            let answer = access.run(statement, &arguments).await?;
            if answer.affected > 0 {
                return Ok(ReleaseReply::Released);
            }
        }
        let decide = |current: Option<Current<'_>>, _| {
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
}

/// The arguments of the statement.
fn arguments<'a>(primary_key: &'a [u8], owner: &'a Owner, remains: Remains) -> [Argument<'a>; 6] {
    [
        Argument::Bytes(primary_key),
        Argument::Bytes(owner.as_bytes()),
        Argument::Int(i64::from(!remains.counts())),
        // Nothing remains of a record with no more attempts than this: it loses its fingerprint, its types with it,
        // and lives for its lease, at least for the last of these arguments.
        Argument::Int(if remains == Remains::Nothing { 1 } else { -1 }),
        Argument::Bytes(&NO_FINGERPRINT),
        Argument::Int(RELEASED_AT_LEAST_MS),
    ]
}
