//! Records in Redis: one string a key, one script an operation, one round trip each.

mod builder;
mod check;
mod failure;
mod link;
mod script;
mod subscriber;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};

pub use self::builder::RedisStoreBuilder;
pub use self::check::Server;
use self::failure::{is_unknown_script, is_wrong_type};
use self::link::{Failure, Link};
use self::script::{Answer, Script, Scripts, unexpected};
use self::subscriber::Subscriber;
use super::{
    ClaimReply, ClaimRequest, CompleteReply, Header, Owner, ReadReply, Record, RecordKey,
    ReleaseReply, RenewReply, ResolveReply, State, Store, StoreError, StoreErrorKind, StoreFuture,
    Unreadable, Watch,
};
use crate::fingerprint::Fingerprint;
use crate::record::Fence;

/// A store in Redis 6.2 or newer, or what speaks its protocol and runs its scripts.
///
/// Clones share one connection, which is made again when it breaks or falls silent. Leases are
/// renewed on a second connection of their own; a third one is made as soon as a call waits for
/// another to finish, and is told of it.
///
/// ```no_run
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::{Engine, store::redis::RedisStore};
///
/// let store = RedisStore::connect("redis://localhost").await?;
/// println!("{}", store.server());
/// Engine::new(store).install()?;
/// # Ok(()) }
/// ```
///
/// # What it asks of the server
///
/// - `maxmemory-policy noeviction`. An evicted record lets its body run again, so a server that
///   evicts is refused; see [`RedisStoreBuilder::allow_eviction`].
/// - These rights, for a user of its own (with the default prefix):
///   `~idem:* +eval +evalsha +get +getrange +set +time +pttl +pexpire +strlen +exists +hello +info`,
///   and `+select` where the URL names a database. So that waiting calls are told when a call has
///   finished, and need not ask again and again: `&idem:* +publish +subscribe +unsubscribe`, and on
///   a cluster `+spublish +ssubscribe +sunsubscribe` as well.
///   None of them is in `@dangerous` or `@admin` but `INFO`, which may be left out: then the store
///   warns that it could not check the eviction policy.
/// - Persistence as the business needs it. With asynchronous replication a failover can forget a
///   claim or an answer that was acknowledged.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    link: Link,
    /// Made by the first renewal, on the engine's own thread.
    renewals: Link,
    /// Connects when a key is first watched, on the engine's own thread as well.
    subscriber: Subscriber,
    scripts: Scripts,
    server: Server,
    max_record_bytes: usize,
}

impl RedisStore {
    /// Connects to `redis://[user:password@]host[:port][/db]` or `unix:///path`, with the default
    /// settings.
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Sets up a store.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }

    /// What the server said about itself when the store connected.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.0.server
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("server", &self.0.server)
            .field("link", &self.0.link)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Runs a script: by digest, and by source where the server does not know it (after a restart,
    /// a failover or `SCRIPT FLUSH`).
    async fn run(
        link: &Link,
        what: &str,
        script: &Script,
        key: &str,
        arguments: &[&[u8]],
    ) -> Result<Answer, StoreError> {
        let mut reply = link.send(&script.command(key, arguments, false)).await;
        if let Err(Failure::Reply(error)) = &reply
            && is_unknown_script(error)
        {
            reply = link.send(&script.command(key, arguments, true)).await;
        }
        match reply {
            Ok(value) => Answer::parse(value),
            Err(Failure::Reply(error)) if is_wrong_type(&error) => Ok(Answer::wrong_type()),
            Err(failure) => Err(failure.store_error(what)),
        }
    }

    async fn script(
        &self,
        what: &str,
        script: &Script,
        key: &str,
        arguments: &[&[u8]],
    ) -> Result<Answer, StoreError> {
        Self::run(&self.link, what, script, key, arguments).await
    }

    /// Reads a record that is too large for a script. `None` if it is not there any more.
    async fn large(&self, name: &str, bytes: usize) -> Result<Option<Bytes>, StoreError> {
        if bytes > self.max_record_bytes {
            return Err(StoreError::new(
                StoreErrorKind::TooLarge,
                format!(
                    "the record has {bytes} bytes; `max_record_bytes` is {}",
                    self.max_record_bytes
                ),
            ));
        }
        let mut get = Cmd::new();
        get.arg("GET").arg(name);
        match self.link.send(&get).await {
            Ok(Value::BulkString(bytes)) => Ok(Some(bytes.into())),
            Ok(Value::Nil) => Ok(None),
            Ok(_) => Err(unexpected()),
            Err(failure) => Err(failure.store_error("reading an answer")),
        }
    }

    /// A finished record from an answer of `D` or `G`. `None`: it changed in between, ask again.
    async fn finished(
        &self,
        name: &str,
        answer: Answer,
        asked: Fingerprint,
    ) -> Result<Option<(Result<Record, Unreadable>, Duration)>, StoreError> {
        let left = answer.millis()?;
        let bytes = if answer.code == b'G' {
            match self.large(name, answer.size()?).await? {
                Some(bytes) => bytes,
                None => return Ok(None),
            }
        } else {
            answer.record()?
        };
        let record = Record::decode(bytes);
        match &record {
            // Its life may have ended before the second look, and another call's have begun.
            Ok(done) if !matches!(done.header.state, State::Done { .. }) => Ok(None),
            Ok(done) if !done.header.fingerprint.matches(asked) => Ok(None),
            _ => Ok(Some((record, left))),
        }
    }

    async fn claim(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
    ) -> Result<ClaimReply, StoreError> {
        let name = key.name();
        let proposed = Header {
            state: State::Pending {
                lease: request.lease,
            },
            owner: request.owner,
            fence: Fence::default(),
            attempts: 0,
            retain: request.retain,
            fingerprint: request.fingerprint,
        };
        let retain = decimal(request.retain.as_millis());
        let max = decimal(request.max_attempts.map_or(0, |max| max.get().into()));
        let arguments: [&[u8]; 3] = [&proposed.encode(), retain.as_bytes(), max.as_bytes()];
        loop {
            let answer = self
                .script("a claim", &self.scripts.claim, &name, &arguments)
                .await?;
            if let Some(error) = answer.unreadable() {
                return Ok(ClaimReply::Unreadable(error));
            }
            return Ok(match answer.code {
                b'A' => match Header::decode(&answer.bytes()?) {
                    Ok(header) => ClaimReply::Granted {
                        fence: header.fence,
                        attempt: header.attempts,
                    },
                    Err(_) => return Err(unexpected()),
                },
                b'B' => ClaimReply::Running {
                    lease_left: answer.millis()?,
                },
                b'M' => ClaimReply::Mismatch,
                b'X' => ClaimReply::Exhausted {
                    attempts: u16::try_from(answer.number()?).map_err(|_| unexpected())?,
                },
                b'D' | b'G' => match self.finished(&name, answer, request.fingerprint).await? {
                    Some((Ok(record), left)) => ClaimReply::Done { record, left },
                    Some((Err(error), _)) => ClaimReply::Unreadable(error),
                    None => continue,
                },
                _ => return Err(unexpected()),
            });
        }
    }

    async fn complete(&self, key: &RecordKey, record: &Bytes) -> Result<CompleteReply, StoreError> {
        let done = match Header::decode(record) {
            Ok(done) => done,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let name = key.name();
        let ttl = decimal(done.retain.as_millis());
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
                b'D' | b'G' => match self.finished(&name, answer, done.fingerprint).await? {
                    Some((Ok(record), left)) => CompleteReply::Adopted { record, left },
                    Some((Err(error), _)) => CompleteReply::Unreadable(error),
                    None => continue,
                },
                _ => return Err(unexpected()),
            });
        }
    }

    async fn release(
        &self,
        key: &RecordKey,
        owner: &Owner,
        count: bool,
    ) -> Result<ReleaseReply, StoreError> {
        let count: &[u8] = if count { b"1" } else { b"0" };
        let arguments: [&[u8]; 2] = [owner.as_bytes(), count];
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

    async fn renew(&self, key: &RecordKey, claim: &Header) -> Result<RenewReply, StoreError> {
        let retain = decimal(claim.retain.as_millis());
        let arguments: [&[u8]; 2] = [&claim.encode(), retain.as_bytes()];
        let answer = Self::run(
            &self.renewals,
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

    async fn read(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        let answer = self
            .script("a read", &self.scripts.read, &key.name(), &[])
            .await?;
        if let Some(error) = answer.unreadable() {
            return Ok(ReadReply::Unreadable(error));
        }
        match answer.code {
            b'N' => Ok(ReadReply::Absent),
            b'D' => {
                // Bytes of another program may well live for ever.
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
fn decimal(number: u128) -> String {
    number.to_string()
}

impl Store for RedisStore {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        StoreFuture::pending(self.0.claim(key, request))
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        StoreFuture::pending(self.0.complete(key, record))
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        count: bool,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::pending(self.0.release(key, owner, count))
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        StoreFuture::pending(self.0.renew(key, claim))
    }

    fn resolve<'a>(
        &'a self,
        _: &'a RecordKey,
        _: &'a Header,
        _: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        StoreFuture::ready(Err(unexpected()))
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::pending(self.0.read(key))
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        StoreFuture::pending(self.0.subscriber.watch(key))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.0.server.warnings();
        warnings.extend(self.0.subscriber.warning());
        warnings
    }
}
