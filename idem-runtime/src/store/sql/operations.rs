//! What each operation does: one statement where it meets what it expects, else it reads the record,
//! decides as every other store, and writes unless somebody has written since.

use std::time::Duration;

use bytes::Bytes;

use super::Inner;
use super::backend::{Answer, Argument, Sealed, Trouble};
use super::lane::Lane;
use super::row::{Columns, Row, life_us, place, shown};
use super::statement::Statement;
use crate::operation::RecordKey;
use crate::record::{Fence, HEADER, Header, Owner, State, Unreadable};
use crate::store::{
    ClaimReply, ClaimRequest, CompleteReply, Current, ReadReply, ReleaseReply, RenewReply,
    ResolveReply, StoreError, StoreErrorKind,
};
use crate::transition;

/// How often an operation begins again because somebody was quicker, before it gives up: each time
/// somebody else got on.
const TRIES: usize = 1_000;

/// What an operation writes.
pub(super) struct Write {
    pub(super) header: Header,
    /// The life of the record; `None`: what it has left.
    pub(super) life: Option<Duration>,
    /// Whether it ends the wait of others.
    pub(super) told: bool,
}

/// Where an operation works.
struct Site<'a, B: Sealed> {
    lane: &'a Lane<B>,
    /// What it is, for errors.
    what: &'static str,
    key: &'a RecordKey,
    place: [u8; 32],
    /// The answer that goes with what it writes.
    body: &'a [u8],
}

impl<'a, B: Sealed> Site<'a, B> {
    fn new(lane: &'a Lane<B>, what: &'static str, key: &'a RecordKey, body: &'a [u8]) -> Self {
        Self {
            lane,
            what,
            key,
            place: place(key),
            body,
        }
    }

    async fn run(
        &self,
        statement: &Statement,
        arguments: &[Argument<'_>],
    ) -> Result<Answer, StoreError> {
        self.lane.run(self.what, statement, arguments).await
    }
}

/// A decision on what was read.
type Decision<T> = (T, Option<Write>);

impl<B: Sealed> Inner<B> {
    /// Reads, lets `decide` say what to write in front of `body`, and writes.
    async fn operate<T>(
        &self,
        site: &Site<'_, B>,
        mut found: Option<Row>,
        decide: impl Fn(Option<Current<'_>>, u64) -> Decision<T>,
        unreadable: impl Fn(Unreadable) -> T,
    ) -> Result<T, StoreError> {
        let here = [Argument::Bytes(&site.place)];
        for _ in 0..TRIES {
            let row = match found.take() {
                Some(row) => Some(row),
                None => site.run(&self.statements.read, &here).await?.row,
            };
            let record = match row.as_ref().map(Row::record).transpose() {
                Ok(record) => record.flatten(),
                Err(error) => return Ok(unreadable(error)),
            };
            let current = record.as_ref().map(|(record, left)| Current {
                record,
                left: *left,
            });
            let now_us = row.as_ref().map_or(0, |row| row.now_us);
            let (reply, write) = decide(current, now_us);
            let Some(write) = write else {
                return Ok(reply);
            };
            let done = match &row {
                Some(row) => self.replace(site, row, &write).await?,
                None => self.insert(site, &write).await?,
            };
            if done {
                return Ok(reply);
            }
        }
        Err(overtaken(site.what))
    }

    async fn replace(
        &self,
        site: &Site<'_, B>,
        row: &Row,
        write: &Write,
    ) -> Result<bool, StoreError> {
        let (columns, (owner, fence)) = (Columns::new(&write.header), row.written_by());
        let arguments = [
            Argument::Bytes(&site.place),
            columns.layout(),
            columns.state(),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.detail(),
            columns.retain_ms(),
            columns.fingerprint(),
            kept(&write.header, site.body),
            Argument::Int(write.life.map_or(-1, life_us)),
            Argument::Int(row.version),
            Argument::Bytes(owner),
            Argument::Int(fence),
        ];
        let statement = if write.told {
            &self.statements.replace_told
        } else {
            &self.statements.replace
        };
        let answer = site.run(statement, &arguments).await?;
        Ok(answer.affected > 0)
    }

    async fn insert(&self, site: &Site<'_, B>, write: &Write) -> Result<bool, StoreError> {
        let columns = Columns::new(&write.header);
        let arguments = [
            Argument::Bytes(&site.place),
            Argument::Text(&shown(site.key)),
            columns.layout(),
            columns.state(),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.detail(),
            columns.retain_ms(),
            columns.fingerprint(),
            kept(&write.header, site.body),
            Argument::Int(life_us(write.life.unwrap_or_default())),
        ];
        let statement = if write.told {
            &self.statements.insert_told
        } else {
            &self.statements.insert
        };
        let answer = site.run(statement, &arguments).await?;
        Ok(answer.affected > 0)
    }

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
                    Ok(answer) => answer.row,
                    // What is done can be replayed all the same.
                    Err((Some(Trouble::ReadOnly), error)) => {
                        let read = site.run(&self.statements.read, &arguments[..1]).await?;
                        Some(read.row.ok_or(error)?)
                    }
                    Err((_, error)) => return Err(error),
                };
            }
            if let Some(row) = &found
                && row.is_fresh(&request.owner)
            {
                return Ok(ClaimReply::Granted {
                    fence: Fence::new(row.written_by().1.unsigned_abs()),
                    attempt: fresh.attempts,
                });
            }
            // Not found: somebody whom the statement could not see was quicker.
            let unreadable = |error| Some(ClaimReply::Unreadable(error));
            let reply = self.operate(&site, found, decide, unreadable).await?;
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
        let answer = site.run(&self.statements.complete, &arguments).await?;
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
        let answer = site.run(&self.statements.release, &arguments).await?;
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
        let answer = site.run(&self.statements.renew, &arguments).await?;
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
        let unreadable = ResolveReply::Unreadable;
        self.operate(&site, None, decide, unreadable).await
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
        let unreadable = ReadReply::Unreadable;
        self.operate(&site, None, decide, unreadable).await
    }
}

fn overtaken(what: &str) -> StoreError {
    let why = format!("{what}: others were quicker {TRIES} times; it may be sent again");
    StoreError::new(StoreErrorKind::Unavailable, why)
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

/// The answer goes with the records that have one.
pub(super) fn kept<'a>(header: &Header, body: &'a [u8]) -> Argument<'a> {
    let done = matches!(header.state, State::Done { .. });
    Argument::Body(done.then_some(body))
}
