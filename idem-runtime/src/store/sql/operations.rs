//! The operations. In the expected case an operation is one statement. Otherwise it reads the record, decides as every
//! other store, and writes unless the record has changed since.

use bytes::Bytes;

use super::Inner;
use super::backend::{Argument, Sealed};
use super::compare_and_write::{Site, Write, kept};
use super::permits::Rank;
use super::pool::Lane;
use super::row::{Columns, NO_FINGERPRINT, life_us};
use crate::identity::operation::RecordKey;
use crate::record::transition;
use crate::record::{HEADER, Header, Owner};
use crate::store::{
    CompleteReply, Current, ReadReply, ReleaseReply, Remains, RenewReply, ResolveReply, StoreError,
};

const RELEASED_AT_LEAST_MS: i64 = transition::RELEASED_AT_LEAST.as_secs().cast_signed() * 1_000;

impl<B: Sealed> Inner<B> {
    pub(super) async fn complete(
        &self,
        key: &RecordKey,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        let done = match Header::decode(record) {
            Ok(done) => done,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let site = Site::new(
            &self.lane,
            ("a completion", Rank::Ending),
            key,
            &record[HEADER..],
        );
        let columns = Columns::new(&done);
        let arguments = [
            Argument::Bytes(&site.place),
            columns.state(),
            columns.detail(),
            columns.retain_ms(),
            kept(&done, site.body),
            Argument::Int(life_us(columns.retain)),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.fingerprint(),
        ];
        let statement = &self.statements.complete;
        let answer = site.run(statement, &arguments).await?;
        if answer.affected > 0 {
            return Ok(CompleteReply::Stored { late: false });
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::complete(current, &done);
            let write = write.map(|header| Write {
                header,
                life: Some(header.retain),
                told: true,
            });
            (reply, write)
        };
        let unreadable = CompleteReply::Unreadable;
        Box::pin(self.operate(&site, None, decide, unreadable)).await
    }

    pub(super) async fn release(
        &self,
        key: &RecordKey,
        owner: &Owner,
        remains: Remains,
    ) -> Result<ReleaseReply, StoreError> {
        let site = Site::new(&self.lane, ("a release", Rank::Ending), key, &[]);
        let arguments = [
            Argument::Bytes(&site.place),
            Argument::Bytes(owner.as_bytes()),
            Argument::Int(i64::from(!remains.counts())),
            // Nothing remains of a record with no more attempts than this: it loses its fingerprint, its types with it,
            // and lives for its lease, at least for the last of these arguments.
            Argument::Int(if remains == Remains::Nothing { 1 } else { -1 }),
            Argument::Bytes(&NO_FINGERPRINT),
            Argument::Int(RELEASED_AT_LEAST_MS),
        ];
        let statement = &self.statements.release;
        let answer = site.run(statement, &arguments).await?;
        if answer.affected > 0 {
            return Ok(ReleaseReply::Released);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::release(current, *owner, remains);
            let write = current.zip(write).map(|(current, header)| Write {
                header,
                life: transition::released_life(&current.record.header, remains),
                told: true,
            });
            (reply, write)
        };
        let unreadable = ReleaseReply::Unreadable;
        Box::pin(self.operate(&site, None, decide, unreadable)).await
    }

    pub(super) async fn renew_on(
        &self,
        lane: &Lane<B>,
        key: &RecordKey,
        claim: &Header,
    ) -> Result<RenewReply, StoreError> {
        let site = Site::new(lane, ("a renewal", Rank::Ending), key, &[]);
        let columns = Columns::new(claim);
        let arguments = [
            Argument::Bytes(&site.place),
            Argument::Int(life_us(claim.retain)),
            columns.owner(),
            columns.fence(),
            columns.retain_ms(),
        ];
        let statement = &self.statements.renew;
        let answer = site.run(statement, &arguments).await?;
        if answer.affected > 0 {
            return Ok(RenewReply::Renewed);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::renew(current, claim);
            let write = write.map(|header| Write {
                header,
                life: Some(header.retain),
                told: false,
            });
            (reply, write)
        };
        let unreadable = RenewReply::Unreadable;
        Box::pin(self.operate(&site, None, decide, unreadable)).await
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
            let write = write.map(|header| Write {
                header,
                life: Some(header.retain),
                told: true,
            });
            (reply, write)
        };
        let site = Site::new(
            &self.lane,
            ("a resolution", Rank::Ending),
            key,
            &record[HEADER..],
        );
        self.operate(&site, None, decide, ResolveReply::Unreadable)
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
        let site = Site::new(&self.own, ("a read", Rank::Other), key, &[]);
        let reply = self.operate(&site, None, decide, ReadReply::Unreadable);
        let reply = reply.await?;
        if let ReadReply::Found { record, left } = &reply {
            self.ascertain(&site, record, *left).await?;
        }
        Ok(reply)
    }
}
