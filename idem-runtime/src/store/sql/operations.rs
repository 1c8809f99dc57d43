//! What each operation does: one statement where it meets what it expects, else it reads the record,
//! decides as every other store, and writes unless somebody has written since.

use bytes::Bytes;

use super::Inner;
use super::backend::{Argument, Sealed, Trouble};
use super::lane::Lane;
use super::row::{Columns, life_us, shown};
use super::site::{Site, TRIES, Write, kept, overtaken};
use crate::operation::RecordKey;
use crate::record::{Fence, HEADER, Header, Owner, State};
use crate::store::{
    ClaimReply, ClaimRequest, CompleteReply, Current, ReadReply, ReleaseReply, RenewReply,
    ResolveReply, StoreError,
};
use crate::transition;

impl<B: Sealed> Inner<B> {
    pub(super) async fn claim(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
    ) -> Result<ClaimReply, StoreError> {
        let site = Site::new(&self.lane, "a claim", key, &[]);
        let fresh = fresh(request);
        let columns = Columns::new(&fresh);
        let arguments = [
            Argument::Bytes(&site.place),
            Argument::Text(&shown(key)),
            columns.layout(),
            columns.state(),
            columns.owner(),
            columns.attempts(),
            columns.detail(),
            columns.retain_ms(),
            columns.fingerprint(),
            Argument::Int(life_us(request.retain)),
        ];
        let decide = |current: Option<Current<'_>>, now_us| {
            // Nobody has a record to write there, unless the database says when that is.
            if now_us == 0 && !request.starts {
                return (None, None);
            }
            let (reply, write) = transition::claim(current, request, now_us);
            let life = Some(request.retain);
            let write = write.map(|header| Write {
                header,
                life,
                told: false,
            });
            (Some(reply), write)
        };
        for _ in 0..TRIES {
            let mut found = None;
            // Whoever starts after a verdict has a claim there, and is not to make a new one.
            if B::READS_FIRST && !request.starts {
                found = site.run(&self.statements.read, &arguments[..1]).await?.row;
            }
            if found.is_none() && !request.starts {
                let claim = &self.statements.claim;
                found = match self.lane.tell(site.what, claim, &arguments).await {
                    Ok(answer) => {
                        if let Some(fence) = answer.granted {
                            return Ok(granted(fence, &fresh));
                        }
                        answer.row
                    }
                    // What is done can be replayed all the same.
                    Err((Some(Trouble::ReadOnly), error)) => {
                        let row = site.run(&self.statements.read, &arguments[..1]).await?.row;
                        Some(row.ok_or(error)?)
                    }
                    Err((_, error)) => return Err(error),
                };
            }
            if let Some(row) = &found
                && row.is_fresh(&request.owner)
            {
                return Ok(granted(row.written_by().1, &fresh));
            }
            // Not found: somebody whom the statement could not see was quicker.
            let unreadable = |error| Some(ClaimReply::Unreadable(error));
            let reply = self.operate(&site, found, decide, unreadable).await?;
            if let Some(ClaimReply::Done { record, left }) = &reply {
                self.ascertain(&site, record, *left).await?;
            }
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
        Err(overtaken(site.what))
    }

    pub(super) async fn complete(
        &self,
        key: &RecordKey,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        let done = match Header::decode(record) {
            Ok(done) => done,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let site = Site::new(&self.lane, "a completion", key, &record[HEADER..]);
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
        self.operate(&site, None, decide, unreadable).await
    }

    pub(super) async fn release(
        &self,
        key: &RecordKey,
        owner: &Owner,
        count: bool,
    ) -> Result<ReleaseReply, StoreError> {
        let site = Site::new(&self.lane, "a release", key, &[]);
        let arguments = [
            Argument::Bytes(&site.place),
            Argument::Bytes(owner.as_bytes()),
            Argument::Int(i64::from(!count)),
        ];
        let statement = &self.statements.release;
        let answer = site.run(statement, &arguments).await?;
        if answer.affected > 0 {
            return Ok(ReleaseReply::Released);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::release(current, *owner, count);
            let write = write.map(|header| Write {
                header,
                life: None,
                told: true,
            });
            (reply, write)
        };
        let unreadable = ReleaseReply::Unreadable;
        self.operate(&site, None, decide, unreadable).await
    }

    pub(super) async fn renew_on(
        &self,
        lane: &Lane<B>,
        key: &RecordKey,
        claim: &Header,
    ) -> Result<RenewReply, StoreError> {
        let site = Site::new(lane, "a renewal", key, &[]);
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
        self.operate(&site, None, decide, unreadable).await
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
        let site = Site::new(&self.lane, "a resolution", key, &record[HEADER..]);
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
        let site = Site::new(&self.own, "a read", key, &[]);
        let reply = self.operate(&site, None, decide, ReadReply::Unreadable);
        let reply = reply.await?;
        if let ReadReply::Found { record, left } = &reply {
            self.ascertain(&site, record, *left).await?;
        }
        Ok(reply)
    }
}

/// The reply to a first claim.
fn granted(fence: i64, fresh: &Header) -> ClaimReply {
    ClaimReply::Granted {
        fence: Fence::new(fence.unsigned_abs()),
        attempt: fresh.attempts,
    }
}

/// The record of a first claim, but for its fence.
pub(super) fn fresh(request: &ClaimRequest) -> Header {
    Header {
        state: State::Pending {
            lease: request.lease,
        },
        owner: request.owner,
        fence: Fence::default(),
        attempts: 1,
        retain: request.retain,
        fingerprint: request.fingerprint,
    }
}
