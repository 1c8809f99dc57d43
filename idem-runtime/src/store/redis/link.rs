//! A connection that reconnects when it breaks, falls silent or reaches a replica.

mod command;
mod exchange;
mod target;
mod time;

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult, Value};

pub(super) use self::command::{ReplicaWait, RoutedCommand};
use self::exchange::last;
pub(super) use self::target::Target;
use self::time::ServerTime;
use super::failure::{Failure, breaks_connection, connect_error, is_replica_error, is_silence};
use super::limits::Limits;
use super::reply::{time_of, wrote};
use super::wire::{BatchCommand, PendingReplies, Wire};
use crate::store::pace::Crowded;
use crate::store::server_clock::ServerClock;
use crate::store::{Admission, StoreError, StoreErrorKind};

/// Consecutive time-outs after which a connection is dropped.
///
/// The server may be gone without a notice from the network.
const MAX_TIMEOUTS: u32 = 3;
/// Wait after which a cancelled command counts as a time-out.
const QUIET: Duration = Duration::from_millis(100);
/// Pause after a failed attempt to connect.
///
/// With it, a thousand calls that retry cost a starting server, or its sentinels, no more than one.
const PAUSE: Duration = Duration::from_millis(20);
/// Age from which a connection that reached a replica is replaced.
///
/// Its address may lead to another server by then; a sooner attempt would reach the same one.
const REPLICA_AGE: Duration = Duration::from_secs(1);

/// A connection, made on first use and again when no longer usable.
///
/// Its driver runs on the runtime that made it.
pub(super) struct Link {
    target: Target,
    limits: Limits,
    live: Mutex<Option<Arc<LiveConnection>>>,
    /// One task at a time connects; the others wait for its result.
    connecting: tokio::sync::Mutex<()>,
    /// The error and time of the last failed attempt to connect. Calls that waited for it share its failure
    /// instead of trying again, one after the other.
    failure: Mutex<Option<(StoreError, Instant)>>,
    /// An earlier attempt to connect succeeded, so the URL was right at that time.
    known: AtomicBool,
    /// The server's clock.
    clock: Arc<ServerClock>,
}

/// A connection and its health.
struct LiveConnection {
    wire: Wire,
    generation: u64,
    since: Instant,
    consecutive_timeouts: AtomicU32,
    /// Number of replies.
    replies: AtomicU64,
    /// The server has replied on it; an accepted connection alone does not count.
    works: AtomicBool,
    time: ServerTime,
}

impl Link {
    pub(super) fn new(target: Target, limits: Limits, clock: Arc<ServerClock>) -> Self {
        Self {
            target,
            limits,
            live: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            failure: Mutex::default(),
            known: AtomicBool::new(false),
            clock,
        }
    }

    /// Sends a command and waits for its reply.
    ///
    /// A command without a reply may have been executed, which the scripts make harmless.
    pub(super) async fn send(&self, command: &RoutedCommand<'_>) -> Result<Value, Failure> {
        let ready = match self.ready() {
            Some(ready) => ready,
            // Boxed: larger, and seldom needed.
            None => Box::pin(self.connected()).await.map_err(Failure::Connect)?,
        };
        // Read before the command is written: the server's time is compared with it.
        let began = command.tells_time.then(Instant::now);
        let exchange = ready.begin(command)?;
        let timed = began.map(|began| (Arc::clone(&exchange.live), began));
        let replicated = command
            .replicas
            .map(|wanted| (Arc::clone(&exchange.live), wanted));
        let reply = exchange.await;
        if let Some((live, began)) = timed {
            self.read_time(&live, began, &reply);
        }
        match (reply, replicated) {
            // `WAIT` covers only writes of the same connection.
            (Ok(reply), Some((live, wanted))) if wrote(&reply) => {
                Box::pin(self.wait(live, wanted)).await.map(|()| reply)
            }
            (reply, _) => reply,
        }
    }

    /// Waits until enough replicas have the write before on this connection.
    async fn wait(&self, live: Arc<LiveConnection>, wanted: &ReplicaWait) -> Result<(), Failure> {
        let ready = ReadyLink { link: self, live };
        let wait = ready.begin(&RoutedCommand::new(&|words| words.copy(&wanted.command)))?;
        wanted.check(&wait.await?)
    }

    /// The connection, if there is a usable one.
    pub(super) fn ready(&self) -> Option<ReadyLink<'_>> {
        let live = self.current()?;
        Some(ReadyLink { link: self, live })
    }

    /// Records the server's time from the end of a reply.
    fn read_time(&self, live: &LiveConnection, began: Instant, reply: &Result<Value, Failure>) {
        if let Ok(reply) = reply
            && let Some(micros) = time_of(reply)
        {
            live.time.record(micros, began.elapsed());
            self.clock.says(micros, began);
        }
    }

    /// Counts a reply or a time-out of a command that was sent after so many `replies`.
    fn count_reply(&self, live: &LiveConnection, replies: u64, failure: Option<&Failure>) {
        if let Some(Failure::Reply(error)) = failure
            && is_silence(error)
        {
            self.count_timeout(live, replies);
            return;
        }
        live.replies.fetch_add(1, Ordering::Relaxed);
        if live.consecutive_timeouts.load(Ordering::Relaxed) != 0 {
            live.consecutive_timeouts.store(0, Ordering::Relaxed);
        }
        if let Some(Failure::Reply(error)) = failure
            && self.is_unusable(live, error)
        {
            self.drop_connection(live);
            // The peer accepts connections and closes them: a balancer without a server.
            if !live.works.load(Ordering::Relaxed) {
                let at = self.target.place();
                self.record_failure(connect_error(&at, error.clone(), true));
            }
        } else if !live.works.load(Ordering::Relaxed) {
            live.works.store(true, Ordering::Relaxed);
        }
    }

    fn record_failure(&self, error: StoreError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *failure = Some((error, Instant::now()));
    }

    fn is_unusable(&self, live: &LiveConnection, error: &RedisError) -> bool {
        breaks_connection(error)
            || self.has_expired(error)
            || is_replica_error(error)
                && (self.target.is_elected() || live.since.elapsed() >= REPLICA_AGE)
    }

    /// Whether the credentials of the connection have expired, and the next one has others.
    fn has_expired(&self, error: &RedisError) -> bool {
        error.code() == Some("NOAUTH") && self.target.changes_credentials()
    }

    /// The failure of a command that was not executed because the credentials of its connection have expired. Of a `WAIT`
    /// the write before it was executed: it has an owner, and is repeated without harm.
    fn expired(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Reply(error) if self.has_expired(&error) => {
                let message = format!(
                    "connecting to Redis at {}: the credentials of the connection have expired; the next one has those \
                     of another call of the provider",
                    self.target.place()
                );
                let error = StoreError::new(StoreErrorKind::Unavailable, message);
                Failure::Connect(error.answered())
            }
            failure => failure,
        }
    }

    /// Counts a time-out, if no reply arrived since `replies` was read. A connection that replies to other commands
    /// is not silent: the command waited in a queue, or the server is busy.
    fn count_timeout(&self, live: &LiveConnection, replies: u64) {
        if live.replies.load(Ordering::Relaxed) != replies {
            return;
        }
        if live.consecutive_timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_TIMEOUTS {
            self.drop_connection(live);
        }
    }

    /// The server's time in microseconds, if it is known on the connection.
    pub(super) fn server_time(&self) -> Option<u64> {
        self.ready()?.server_time()
    }

    /// The connection, if it is usable.
    fn current(&self) -> Option<Arc<LiveConnection>> {
        self.target.listen_for_failovers(self.limits);
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let live = live.as_ref()?;
        (live.generation == self.target.generation()).then(|| Arc::clone(live))
    }

    /// Connects, or waits for the task that does.
    async fn connected(&self) -> Result<ReadyLink<'_>, StoreError> {
        let _connecting = self.connecting.lock().await;
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        {
            let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((error, at)) = &*failure
                && at.elapsed() < PAUSE
            {
                return Err(error.clone());
            }
        }
        // Read before connecting: a change in between is noticed at the next command.
        let generation = self.target.generation();
        let known = self.known.load(Ordering::Relaxed);
        match self.target.connect(self.limits, known).await {
            Ok(wire) => {
                self.known.store(true, Ordering::Relaxed);
                let live = Arc::new(LiveConnection {
                    wire,
                    generation,
                    since: Instant::now(),
                    consecutive_timeouts: AtomicU32::new(0),
                    replies: AtomicU64::new(0),
                    works: AtomicBool::new(false),
                    time: ServerTime::default(),
                });
                *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&live));
                Ok(ReadyLink { link: self, live })
            }
            Err(error) => {
                self.record_failure(error.clone());
                Err(error)
            }
        }
    }

    /// Drops this connection, unless another has replaced it already.
    fn drop_connection(&self, broken: &LiveConnection) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live
            .as_ref()
            .is_some_and(|live| std::ptr::eq(Arc::as_ptr(live), broken))
        {
            *live = None;
        }
        drop(live);
        // Queued commands were not sent, and go over the next connection.
        broken.wire.close();
    }

    /// Queue of a claim that cannot be sent in time.
    pub(super) fn crowded(&self, admission: &Admission) -> Option<Crowded> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.as_ref()?.wire.crowded(admission)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("connected", &self.current().is_some())
            .finish_non_exhaustive()
    }
}

/// A link with a usable connection.
pub(super) struct ReadyLink<'a> {
    link: &'a Link,
    live: Arc<LiveConnection>,
}

impl<'a> ReadyLink<'a> {
    /// The server's time in microseconds, if it is known on this connection.
    pub(super) fn server_time(&self) -> Option<u64> {
        self.live.time.now()
    }

    /// Whether other commands are under way on the connection.
    pub(super) fn is_busy(&self) -> bool {
        self.live.wire.is_busy()
    }

    /// Sends a command, but for the wait for its replicas.
    pub(super) fn begin(self, command: &RoutedCommand<'_>) -> Result<Exchange<'a>, Failure> {
        self.begin_by(|wire| command.begin(wire))
    }

    /// Sends a command in a batch.
    pub(super) fn begin_in_batch(
        self,
        command: &BatchCommand<'_>,
    ) -> Result<Exchange<'a>, Failure> {
        self.begin_by(|wire| wire.begin_in_batch(command))
    }

    fn begin_by(
        self,
        begin: impl FnOnce(&Wire) -> RedisResult<PendingReplies>,
    ) -> Result<Exchange<'a>, Failure> {
        let Self { link, live } = self;
        let before = live.replies.load(Ordering::Relaxed);
        match begin(&live.wire) {
            Ok(replies) => Ok(Exchange {
                replies,
                link,
                live,
                before,
            }),
            Err(error) => {
                let failure = Failure::Reply(error);
                link.count_reply(&live, before, Some(&failure));
                Err(failure)
            }
        }
    }
}

/// A command in flight. If dropped, it may still be executed.
///
/// A sender whose deadline is shorter than `response_timeout` drops it, which counts as a time-out as well.
pub(super) struct Exchange<'a> {
    replies: PendingReplies,
    link: &'a Link,
    live: Arc<LiveConnection>,
    /// Number of replies when the command was sent.
    before: u64,
}

impl Future for Exchange<'_> {
    type Output = Result<Value, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = last(ready!(Pin::new(&mut self.replies).poll(cx)));
        (self.link).count_reply(&self.live, self.before, reply.as_ref().err());
        Poll::Ready(reply.map_err(|failure| self.link.expired(failure)))
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        let waited = self.replies.waited();
        if waited.is_some_and(|waited| waited >= QUIET) {
            self.link.count_timeout(&self.live, self.before);
        }
    }
}
