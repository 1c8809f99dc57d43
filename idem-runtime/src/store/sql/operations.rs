//! The operations. In the expected case an operation is one statement. Otherwise it reads the record, decides as every
//! other store, and writes unless the record has changed since.

use bytes::Bytes;

use super::SqlStoreState;
use super::backend::{Argument, SqlDriver};
use super::compare_and_write::{HeaderWrite, RecordAccess, kept};
use super::permits::Priority;
use super::pool::ConnectionPool;
use super::row::{HeaderColumns, NO_FINGERPRINT, life_us};
use crate::identity::operation::RecordKey;
use crate::record::transition;
use crate::record::{HEADER, Header, Owner};
use crate::store::{
    CompleteReply, Current, ReadReply, ReleaseReply, Remains, RenewReply, ResolveReply, StoreError,
};

const RELEASED_AT_LEAST_MS: i64 = transition::RELEASED_AT_LEAST.as_secs().cast_signed() * 1_000;

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn complete(
        &self,
        key: &RecordKey,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        let done = match Header::decode(record) {
            Ok(done) => done,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let access = RecordAccess::new(
            &self.pool,
            ("a completion", Priority::Ending),
            key,
            &record[HEADER..],
        );
        let columns = HeaderColumns::new(&done);
        let arguments = [
            Argument::Bytes(&access.primary_key),
            columns.state(),
            columns.detail(),
            columns.retain_ms(),
            kept(&done, access.body),
            Argument::Int(life_us(columns.retain)),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.fingerprint(),
        ];
        let statement = &self.statements.complete;
        let answer = access.run(statement, &arguments).await?;
        if answer.affected > 0 {
            return Ok(CompleteReply::Stored { late: false });
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::complete(current, &done);
            let write = write.map(|header| HeaderWrite {
                header,
                life: Some(header.retain),
                told: true,
            });
            (reply, write)
        };
        let unreadable = CompleteReply::Unreadable;
        Box::pin(self.operate(&access, None, decide, unreadable)).await
    }

    pub(super) async fn release(
        &self,
        key: &RecordKey,
        owner: &Owner,
        remains: Remains,
    ) -> Result<ReleaseReply, StoreError> {
        let access = RecordAccess::new(&self.pool, ("a release", Priority::Ending), key, &[]);
        let arguments = [
            Argument::Bytes(&access.primary_key),
            Argument::Bytes(owner.as_bytes()),
            Argument::Int(i64::from(!remains.counts())),
            // Nothing remains of a record with no more attempts than this: it loses its fingerprint, its types with it,
            // and lives for its lease, at least for the last of these arguments.
            Argument::Int(if remains == Remains::Nothing { 1 } else { -1 }),
            Argument::Bytes(&NO_FINGERPRINT),
            Argument::Int(RELEASED_AT_LEAST_MS),
        ];
        let statement = &self.statements.release;
        let answer = access.run(statement, &arguments).await?;
        if answer.affected > 0 {
            return Ok(ReleaseReply::Released);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::release(current, *owner, remains);
            let write = current.zip(write).map(|(current, header)| HeaderWrite {
                header,
                life: transition::released_life(&current.record.header, remains),
                told: true,
            });
            (reply, write)
        };
        let unreadable = ReleaseReply::Unreadable;
        Box::pin(self.operate(&access, None, decide, unreadable)).await
    }

    pub(super) async fn renew_on(
        &self,
        pool: &ConnectionPool<B>,
        key: &RecordKey,
        claim: &Header,
    ) -> Result<RenewReply, StoreError> {
        let access = RecordAccess::new(pool, ("a renewal", Priority::Ending), key, &[]);
        let columns = HeaderColumns::new(claim);
        let arguments = [
            Argument::Bytes(&access.primary_key),
            Argument::Int(life_us(claim.retain)),
            columns.owner(),
            columns.fence(),
            columns.retain_ms(),
        ];
        let statement = &self.statements.renew;
        let answer = access.run(statement, &arguments).await?;
        if answer.affected > 0 {
            return Ok(RenewReply::Renewed);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::renew(current, claim);
            let write = write.map(|header| HeaderWrite {
                header,
                life: Some(header.retain),
                told: false,
            });
            (reply, write)
        };
        let unreadable = RenewReply::Unreadable;
        Box::pin(self.operate(&access, None, decide, unreadable)).await
    }

    pub(super) async fn resolve(
        &self,
        key: &RecordKey,
        seen: &Header,
        record: &Bytes,
    ) -> Result<ResolveReply, StoreError> {
        let new = match Header::decode(record) {
            Ok(new) => new,
            Err(error) => return Ok(ResolveReply::Unreadable(error)),
        };
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::resolve(current, seen, &new);
            let write = write.map(|header| HeaderWrite {
                header,
                life: Some(header.retain),
                told: true,
            });
            (reply, write)
        };
        let access = RecordAccess::new(
            &self.pool,
            ("a resolution", Priority::Ending),
            key,
            &record[HEADER..],
        );
        self.operate(&access, None, decide, ResolveReply::Unreadable)
            .await
    }

    pub(super) async fn read(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        let decide = |current: Option<Current<'_>>, _| {
            let reply = match current {
                None => ReadReply::Absent,
                Some(Current { record, left }) => ReadReply::Found {
                    record: record.clone(),
                    left,
                },
            };
            (reply, None)
        };
        let access = RecordAccess::new(&self.own, ("a read", Priority::Other), key, &[]);
        let reply = self.operate(&access, None, decide, ReadReply::Unreadable);
        let reply = reply.await?;
        if let ReadReply::Found { record, left } = &reply {
            self.ascertain(&access, record, *left).await?;
        }
        Ok(reply)
    }
}
