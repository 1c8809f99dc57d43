//! The commands of each store operation, and the meaning of their replies.

use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};

use super::super::{
    Admission, ClaimReply, ClaimRequest, CompleteReply, Header, Needs, Owner, ReadReply, Record,
    RecordKey, ReleaseReply, Remains, RenewReply, ResolveReply, State, StoreError, StoreErrorKind,
    Unreadable,
};
use super::Inner;
use super::failure::{is_unknown_script, is_wrong_type};
use super::link::{Failure, Order};
use super::node::Keeping;
use super::resolutions::channel;
use super::route::Route;
use super::script::{Answer, Script, unexpected};
use super::staged::LARGE;
use crate::identity::fingerprint::Fingerprint;
use crate::record::Fence;
use crate::store::pace::Crowded;

impl Inner {
    /// Runs a script: by digest, and by source where the server does not know it (after a restart,
    /// a failover or `SCRIPT FLUSH`).
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` holds what it is given twice, and this future is part of every call's"
    )]
    pub(super) fn run<'a>(
        route: &'a Route,
        what: &'a str,
        script: &'a Script,
        key: &'a str,
        arguments: &'a [&'a [u8]],
    ) -> impl Future<Output = Result<Answer, StoreError>> + use<'a> {
        async move {
            let [by_digest, by_source] =
                [false, true].map(|by_source| move || script.command(&[key], arguments, by_source));
            let order = Order {
                tells_time: script.tells_time,
                claims: script.claims,
                ..Order::about(key, &by_digest)
            };
            let mut reply = route.send(&order, script.keeping).await;
            if let Err(Failure::Reply(error)) = &reply
                && is_unknown_script(error)
            {
                let order = Order {
                    tells_time: script.tells_time,
                    claims: script.claims,
                    ..Order::about(key, &by_source)
                };
                // Boxed: seldom needed.
                reply = Box::pin(route.send(&order, script.keeping)).await;
            }
            match reply {
                Ok(value) => Answer::parse(value),
                Err(Failure::Reply(error)) if is_wrong_type(&error) => Ok(Answer::wrong_type()),
                Err(failure) => Err(failure.store_error(what)),
            }
        }
    }

    fn script<'a>(
        &'a self,
        what: &'a str,
        script: &'a Script,
        key: &'a str,
        arguments: &'a [&'a [u8]],
    ) -> impl Future<Output = Result<Answer, StoreError>> + use<'a> {
        Self::run(&self.link, what, script, key, arguments)
    }

    /// Refuses a record of more bytes than this store reads.
    pub(super) fn readable(&self, bytes: usize) -> Result<(), StoreError> {
        if bytes <= self.max_record_bytes {
            return Ok(());
        }
        Err(StoreError::new(
            StoreErrorKind::TooLarge,
            format!(
                "the record has {bytes} bytes; `max_record_bytes` is {}",
                self.max_record_bytes
            ),
        ))
    }

    /// Reads a record without a script. `None` if the key is absent, or holds an empty string.
    ///
    /// The server sends at most one byte more than this store reads. The length of a larger record is queried then.
    pub(super) async fn large(
        &self,
        route: &Route,
        name: &str,
    ) -> Result<Option<Bytes>, StoreError> {
        let most = self.max_record_bytes.to_string();
        let get = || {
            let mut get = Cmd::new();
            // One byte more than the limit, to detect a larger record.
            get.arg("GETRANGE").arg(name).arg("0").arg(&most);
            get
        };
        let bytes = match route
            .send(&Order::about(name, &get), Keeping::Nothing)
            .await
        {
            Ok(Value::BulkString(bytes)) => bytes,
            Ok(_) => return Err(unexpected()),
            Err(failure) => return Err(failure.store_error("reading an answer")),
        };
        if bytes.len() <= self.max_record_bytes {
            return Ok(Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty()));
        }
        let length = || {
            let mut length = Cmd::new();
            length.arg("STRLEN").arg(name);
            length
        };
        let length = Order::about(name, &length);
        let length = match Box::pin(route.send(&length, Keeping::Nothing)).await {
            Ok(Value::Int(length)) => usize::try_from(length).unwrap_or_default(),
            // A lower bound of the length.
            _ => bytes.len(),
        };
        self.readable(length.max(bytes.len())).map(|()| None)
    }

    /// The record of a `D` or `G` answer. `None`: it changed in between, send the script again.
    async fn finished(
        &self,
        name: &str,
        answer: Answer,
        asked: Fingerprint,
    ) -> Result<Option<(Result<Record, Unreadable>, Duration)>, StoreError> {
        let left = answer.millis()?;
        if answer.code == b'D' {
            return Ok(Some((Record::decode(answer.record()?), left)));
        }
        self.readable(answer.size()?)?;
        let Some(bytes) = self.large(&self.link, name).await? else {
            return Ok(None);
        };
        let record = Record::decode(bytes);
        match &record {
            // The record may have expired before the second read, and another call may have claimed the key.
            Ok(done) if !matches!(done.header.state, State::Done { .. }) => Ok(None),
            Ok(done) if !done.header.fingerprint.matches(asked) => Ok(None),
            _ => Ok(Some((record, left))),
        }
    }

    /// The error of a claim that cannot be sent in time, if so.
    pub(super) fn refused(&self, key: &RecordKey, admission: &Admission) -> Option<StoreError> {
        let Crowded {
            waiting,
            retry_after,
        } = self.link.crowded(key, admission)?;
        let message = format!(
            "a claim: {waiting} others wait for the connection to Redis, longer than this one may, and it was not \
             sent; it may be made again in {retry_after:.1?}"
        );
        Some(StoreError::overloaded(message, retry_after))
    }

    pub(super) async fn claim(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
    ) -> Result<ClaimReply, StoreError> {
        let name = key.name();
        match self.plain_claim(&name, request).await? {
            Some(reply) => Ok(reply),
            // Boxed: it is larger, and seldom needed.
            None => Box::pin(self.scripted_claim(&name, request)).await,
        }
    }

    async fn scripted_claim(
        &self,
        name: &str,
        request: &ClaimRequest,
    ) -> Result<ClaimReply, StoreError> {
        let lease = request.lease;
        let proposed = Header {
            state: if request.reconciles {
                State::Reconciling { lease }
            } else {
                State::Pending { lease }
            },
            owner: request.owner,
            fence: Fence::default(),
            attempts: 0,
            retain: request.retain,
            fingerprint: request.fingerprint,
            types: request.types,
        };
        let retain = decimal(millis(request.retain));
        let max = decimal(request.max_attempts.map_or(0, |max| max.get().into()));
        let mut proposed = proposed.encode();
        if request.needs == Needs::Verdict {
            // Not a state of a record: a flag for the script.
            proposed[1] = b'S';
        }
        let words: &[u8] = match (request.any_type, request.needs == Needs::Record) {
            (false, false) => b"",
            (true, false) => b"T",
            (false, true) => b"R",
            (true, true) => b"TR",
        };
        let arguments: [&[u8]; 4] = [&proposed, retain.as_bytes(), max.as_bytes(), words];
        let arguments = if words.is_empty() {
            &arguments[..3]
        } else {
            &arguments[..]
        };
        loop {
            let answer = self
                .script("a claim", &self.scripts.claim, name, arguments)
                .await?;
            if let Some(error) = answer.unreadable() {
                return Ok(ClaimReply::Unreadable(error));
            }
            return Ok(match answer.code {
                code @ (b'A' | b'F') => {
                    let header = Header::decode(&answer.bytes()?).map_err(|_| unexpected())?;
                    let (fence, attempts) = (header.fence, header.attempts);
                    match header.state {
                        State::Reconciling { .. } => ClaimReply::Reconcile { fence, attempts },
                        _ => ClaimReply::Granted {
                            fence,
                            attempt: attempts,
                            fresh: code == b'F',
                        },
                    }
                }
                b'B' => ClaimReply::Running {
                    lease_left: answer.millis()?,
                },
                b'N' => ClaimReply::Absent,
                b'M' => ClaimReply::Mismatch,
                b'O' => ClaimReply::OtherType,
                b'X' => ClaimReply::Exhausted {
                    attempts: u16::try_from(answer.number()?).map_err(|_| unexpected())?,
                },
                b'D' | b'G' => match self.finished(name, answer, request.fingerprint).await? {
                    Some((Ok(record), left)) => ClaimReply::Done { record, left },
                    Some((Err(error), _)) => ClaimReply::Unreadable(error),
                    None => continue,
                },
                _ => return Err(unexpected()),
            });
        }
    }

    pub(super) async fn complete(
        &self,
        key: &RecordKey,
        claim: Option<&Header>,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        // The header is not kept, because this future is part of every call's.
        let retain = match Header::decode(record) {
            Ok(done) => done.retain,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let name = key.name();
        if let Some(claim) = claim.filter(|_| self.swaps)
            && self.swap(&name, claim, retain, record).await?
        {
            return Ok(CompleteReply::Stored { late: false });
        }
        // Boxed: it is larger, and seldom needed.
        if record.len() >= LARGE && Box::pin(self.complete_staged(key, &name, record)).await? {
            return Ok(CompleteReply::Stored { late: false });
        }
        let ttl = decimal(millis(retain));
        let arguments: [&[u8]; 2] = [record, ttl.as_bytes()];
        loop {
            let answer = self
                .script("a completion", &self.scripts.complete, &name, &arguments)
                .await?;
            if let Some(error) = answer.unreadable() {
                return Ok(CompleteReply::Unreadable(error));
            }
            return Ok(match answer.code {
                b'C' => CompleteReply::Stored {
                    late: answer.number()? == 1,
                },
                b'S' => CompleteReply::Superseded {
                    lease_left: answer.millis()?,
                },
                b'M' => CompleteReply::Mismatch,
                b'D' | b'G' => {
                    let asked = Header::decode(record)
                        .map_err(|_| unexpected())?
                        .fingerprint;
                    match Box::pin(self.finished(&name, answer, asked)).await? {
                        Some((Ok(record), left)) => CompleteReply::Adopted { record, left },
                        Some((Err(error), _)) => CompleteReply::Unreadable(error),
                        None => continue,
                    }
                }
                _ => return Err(unexpected()),
            });
        }
    }

    pub(super) async fn release(
        &self,
        key: &RecordKey,
        owner: &Owner,
        remains: Remains,
    ) -> Result<ReleaseReply, StoreError> {
        let remains: &[u8] = match remains {
            Remains::Request => b"0",
            Remains::Attempt => b"1",
            Remains::Nothing => b"2",
        };
        let arguments: [&[u8]; 2] = [owner.as_bytes(), remains];
        let answer = self
            .script("a release", &self.scripts.release, &key.name(), &arguments)
            .await?;
        if let Some(error) = answer.unreadable() {
            return Ok(ReleaseReply::Unreadable(error));
        }
        match answer.code {
            b'C' => Ok(ReleaseReply::Released),
            b'S' => Ok(ReleaseReply::Superseded),
            b'N' => Ok(ReleaseReply::Absent),
            _ => Err(unexpected()),
        }
    }

    pub(super) async fn renew(
        &self,
        key: &RecordKey,
        claim: &Header,
    ) -> Result<RenewReply, StoreError> {
        let retain = decimal(millis(claim.retain));
        let arguments: [&[u8]; 2] = [&claim.encode(), retain.as_bytes()];
        let answer = Self::run(
            &self.own,
            "a renewal",
            &self.scripts.renew,
            &key.name(),
            &arguments,
        )
        .await?;
        if let Some(error) = answer.unreadable() {
            return Ok(RenewReply::Unreadable(error));
        }
        match answer.code {
            b'C' => Ok(RenewReply::Renewed),
            b'L' => Ok(RenewReply::Reasserted),
            b'S' => Ok(RenewReply::Lost),
            _ => Err(unexpected()),
        }
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
        let retain = decimal(millis(new.retain));
        let channel = channel(key.prefix());
        let arguments: [&[u8]; 4] = [
            &seen.encode(),
            record,
            retain.as_bytes(),
            channel.as_bytes(),
        ];
        let answer = self
            .script(
                "a resolution",
                &self.scripts.resolve,
                &key.name(),
                &arguments,
            )
            .await?;
        if let Some(error) = answer.unreadable() {
            return Ok(ResolveReply::Unreadable(error));
        }
        match answer.code {
            b'C' => Ok(ResolveReply::Resolved),
            b'S' => Ok(ResolveReply::Changed),
            b'B' => Ok(ResolveReply::Running {
                lease_left: answer.millis()?,
            }),
            b'N' => Ok(ResolveReply::Absent),
            _ => Err(unexpected()),
        }
    }

    pub(super) async fn read(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        self.read_by(&self.scripts.read, key).await
    }

    /// Reads a record for a watcher, and marks a claim as watched.
    pub(super) async fn wait(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        self.read_by(&self.scripts.wait, key).await
    }

    async fn read_by(&self, script: &Script, key: &RecordKey) -> Result<ReadReply, StoreError> {
        // Watchers are notified on the engine's thread, and read there.
        let most = decimal(self.max_record_bytes as u64);
        let arguments: [&[u8]; 1] = [most.as_bytes()];
        let answer = Self::run(&self.own, "a read", script, &key.name(), &arguments).await?;
        if let Some(error) = answer.unreadable() {
            return Ok(ReadReply::Unreadable(error));
        }
        match answer.code {
            b'N' => Ok(ReadReply::Absent),
            b'L' => self.readable(answer.size()?).and(Err(unexpected())),
            b'D' => {
                // A value of another program may have no expiry.
                let left = answer.millis().unwrap_or_default();
                Ok(match Record::decode(answer.record()?) {
                    Ok(record) => ReadReply::Found { record, left },
                    Err(error) => ReadReply::Unreadable(error),
                })
            }
            _ => Err(unexpected()),
        }
    }
}

/// Redis takes numbers as text.
pub(super) fn decimal(number: u64) -> String {
    number.to_string()
}

/// A duration in milliseconds, as Redis takes it. The bounds of the policy keep it far below the limit.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
