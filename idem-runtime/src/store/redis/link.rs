//! A connection that is made again when it breaks or falls silent.

mod time;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use redis::{ConnectionAddr, RedisError, RedisResult, Value};

use self::time::ServerTime;
use super::connect::connect;
use super::endpoint::{Endpoint, place};
use super::failure::{Failure, breaks_connection, connect_error, is_replica_error};
use super::sentinel::Sentinels;
use super::wire::{
    BatchCommand, ConnectionLimits, PendingReplies, Replies, Wire, WriteCommand, text_pairs,
};
use crate::env::lock::Lock;
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

/// One command or two in succession, with routing and options.
#[derive(Clone, Copy)]
pub(super) struct RoutedCommand<'a> {
    pub(super) command: &'a WriteCommand<'a>,
    /// Never sent to a node that is importing the slot.
    pub(super) second: Option<&'a WriteCommand<'a>>,
    /// The key of the command; empty for none: any node of a cluster serves it.
    pub(super) key: &'a str,
    /// The node is importing the key's slot, and requires `ASKING`.
    pub(super) asking: bool,
    /// Its reply ends with the server's time.
    pub(super) tells_time: bool,
    /// It is a claim: completions, releases and renewals are sent before it.
    pub(super) claims: bool,
}

impl<'a> RoutedCommand<'a> {
    pub(super) fn new(command: &'a WriteCommand<'a>) -> Self {
        Self {
            command,
            second: None,
            key: "",
            asking: false,
            tells_time: false,
            claims: false,
        }
    }

    /// A command on this key.
    pub(super) fn on_key(key: &'a str, command: &'a WriteCommand<'a>) -> Self {
        Self {
            key,
            ..Self::new(command)
        }
    }

    /// Two commands, one right after the other. The reply is that of the second, or the first error.
    pub(super) fn pair(
        key: &'a str,
        first: &'a WriteCommand<'a>,
        second: &'a WriteCommand<'a>,
    ) -> Self {
        Self {
            second: Some(second),
            ..Self::on_key(key, first)
        }
    }

    /// Whether a node that is importing the slot can execute it.
    pub(super) fn is_one(&self) -> bool {
        self.second.is_none()
    }

    fn begin(&self, wire: &Wire) -> RedisResult<PendingReplies> {
        if self.asking {
            let asking: &WriteCommand<'_> = &|words| words.command(&[&[b"ASKING"]]);
            return wire.begin(asking, Some(self.command), false);
        }
        wire.begin(self.command, self.second, self.claims)
    }
}

/// A connection, made on first use and again when no longer usable.
///
/// Its driver runs on the runtime that made it.
pub(super) struct Link {
    target: Target,
    limits: ConnectionLimits,
    live: Lock<Option<Arc<LiveConnection>>>,
    /// One task at a time connects; the others wait for its result.
    connecting: tokio::sync::Mutex<()>,
    /// The error and time of the last failed attempt to connect. Calls that waited for it share its failure
    /// instead of trying again, one after the other.
    failure: Lock<Option<(StoreError, Instant)>>,
    /// An earlier attempt to connect succeeded: the URL was right then.
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
    pub(super) fn new(target: Target, limits: ConnectionLimits, clock: Arc<ServerClock>) -> Self {
        Self {
            target,
            limits,
            live: Lock::default(),
            connecting: tokio::sync::Mutex::default(),
            failure: Lock::default(),
            known: AtomicBool::new(false),
            clock,
        }
    }

    /// Sends a command and waits for its reply.
    ///
    /// A command without a reply may have been executed, which the scripts make harmless.
    pub(super) async fn send(&self, command: &RoutedCommand<'_>) -> Result<Value, Failure> {
        self.connected().await?.send(command).await
    }

    /// The usable connection, or a new one.
    pub(super) async fn connected(&self) -> Result<ReadyLink<'_>, Failure> {
        match self.ready() {
            Some(ready) => Ok(ready),
            // Boxed: larger, and seldom needed.
            None => Box::pin(self.connect()).await.map_err(Failure::Connect),
        }
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

    /// Counts a reply or a time-out, of a command sent after `replies`.
    fn count_reply(&self, live: &LiveConnection, replies: u64, failure: Option<&Failure>) {
        if let Some(Failure::Reply(error)) = failure
            && error.is_timeout()
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
        let mut failure = self.failure.lock();
        *failure = Some((error, Instant::now()));
    }

    fn is_unusable(&self, live: &LiveConnection, error: &RedisError) -> bool {
        breaks_connection(error)
            || self.has_expired(error)
            || is_replica_error(error)
                && (self.target.is_elected() || live.since.elapsed() >= REPLICA_AGE)
    }

    /// Whether the credentials have expired, and the next connection has others.
    fn has_expired(&self, error: &RedisError) -> bool {
        error.code() == Some("NOAUTH") && self.target.changes_credentials()
    }

    /// The failure of a command that expired credentials kept from execution. Of a `WAIT` the write before it was
    /// executed: it has an owner, and is repeated without harm.
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
        let live = self.live.lock();
        let live = live.as_ref()?;
        (live.generation == self.target.generation()).then(|| Arc::clone(live))
    }

    /// Connects, or waits for the task that does.
    async fn connect(&self) -> Result<ReadyLink<'_>, StoreError> {
        let _connecting = self.connecting.lock().await;
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        {
            let failure = self.failure.lock();
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
                *self.live.lock() = Some(Arc::clone(&live));
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
        let mut live = self.live.lock();
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
        let live = self.live.lock();
        live.as_ref()?.wire.crowded(admission)
    }
}

debug_fields!(Link {
    connected: |it| it.current().is_some()
});

/// A link with a usable connection.
#[derive(Clone)]
pub(super) struct ReadyLink<'a> {
    link: &'a Link,
    live: Arc<LiveConnection>,
}

impl<'a> ReadyLink<'a> {
    /// Sends a command and waits for its reply.
    pub(super) async fn send(self, command: &RoutedCommand<'_>) -> Result<Value, Failure> {
        // Read before the command is written: the server's time is compared with it.
        let timed = command.tells_time.then(|| (self.clone(), Instant::now()));
        let reply = self.begin(command)?.await;
        if let Some((ready, began)) = timed {
            ready.link.read_time(&ready.live, began, &reply);
        }
        reply
    }

    /// The server's time in microseconds, if it is known on this connection.
    pub(super) fn server_time(&self) -> Option<u64> {
        self.live.time.now()
    }

    /// Whether other commands are under way on the connection.
    pub(super) fn is_busy(&self) -> bool {
        self.live.wire.is_busy()
    }

    /// Sends a command.
    pub(super) fn begin(self, command: &RoutedCommand<'_>) -> Result<CommandInFlight<'a>, Failure> {
        self.begin_by(|wire| command.begin(wire))
    }

    /// Sends a command in a batch.
    pub(super) fn begin_in_batch(
        self,
        command: &BatchCommand<'_>,
    ) -> Result<CommandInFlight<'a>, Failure> {
        self.begin_by(|wire| wire.begin_in_batch(command))
    }

    fn begin_by(
        self,
        begin: impl FnOnce(&Wire) -> RedisResult<PendingReplies>,
    ) -> Result<CommandInFlight<'a>, Failure> {
        let Self { link, live } = self;
        let before = live.replies.load(Ordering::Relaxed);
        match begin(&live.wire) {
            Ok(replies) => Ok(CommandInFlight {
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
pub(super) struct CommandInFlight<'a> {
    replies: PendingReplies,
    link: &'a Link,
    live: Arc<LiveConnection>,
    /// Number of replies when the command was sent.
    before: u64,
}

impl Future for CommandInFlight<'_> {
    type Output = Result<Value, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = last(ready!(Pin::new(&mut self.replies).poll(cx)));
        (self.link).count_reply(&self.live, self.before, reply.as_ref().err());
        Poll::Ready(reply.map_err(|failure| self.link.expired(failure)))
    }
}

impl Drop for CommandInFlight<'_> {
    fn drop(&mut self) {
        let waited = self.replies.waited();
        if waited.is_some_and(|waited| waited >= QUIET) {
            self.link.count_timeout(&self.live, self.before);
        }
    }
}

/// The last reply, or the first error. A user without the right to `ASKING` would be redirected forever otherwise.
fn last(replies: RedisResult<Replies>) -> Result<Value, Failure> {
    let checked = |value| match value {
        Value::ServerError(error) => Err(Failure::Reply(error.into())),
        value => Ok(value),
    };
    let Replies { first, second } = replies.map_err(Failure::Reply)?;
    let first = checked(first)?;
    second.map_or(Ok(first), checked)
}

/// Whether a script's reply reports a write: a granted claim (`A`, `F`), a completion, release,
/// renewal or resolution (`C`), a lost claim that was written again (`L`).
pub(super) fn wrote(reply: &Value) -> bool {
    match reply {
        Value::Int(written) => *written == 1,
        Value::Array(parts) => {
            matches!(parts.first(), Some(Value::BulkString(code)) if matches!(code[..], [b'A' | b'C' | b'F' | b'L']))
        }
        _ => false,
    }
}

/// The server's time at the end of a reply, in microseconds.
fn time_of(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else {
        return None;
    };
    match parts.last() {
        Some(Value::Int(micros)) => u64::try_from(*micros).ok(),
        _ => None,
    }
}

/// The server of a connection, resolved anew for each connection.
#[derive(Clone)]
pub(super) enum Target {
    /// One server.
    Server(Box<Endpoint>),
    /// The server that the sentinels name as the primary.
    Primary(Sentinels),
}

impl Target {
    /// The current server, for subscriptions.
    pub(super) async fn endpoint(&self, limits: ConnectionLimits) -> Result<Endpoint, StoreError> {
        match self {
            Self::Server(endpoint) => Ok(Endpoint::clone(endpoint)),
            Self::Primary(sentinels) => sentinels.primary(limits).await,
        }
    }

    /// Connects. `known`: an earlier attempt succeeded.
    async fn connect(&self, limits: ConnectionLimits, known: bool) -> Result<Wire, StoreError> {
        match self {
            Self::Server(endpoint) => one(endpoint, limits, known).await,
            Self::Primary(sentinels) => {
                let endpoint = sentinels.primary(limits).await?;
                let wire = one(&endpoint, limits, known).await?;
                is_primary(&endpoint, wire).await
            }
        }
    }

    /// Starts the failover listeners, unless they run. They change `generation` on a failover.
    fn listen_for_failovers(&self, limits: ConnectionLimits) {
        if let Self::Primary(sentinels) = self {
            sentinels.listen(limits);
        }
    }

    /// Changes when an earlier connection may lead to the wrong server.
    pub(super) fn generation(&self) -> u64 {
        if let Self::Primary(sentinels) = self {
            sentinels.generation()
        } else {
            0
        }
    }

    /// The place of the server, for a message.
    fn place(&self) -> String {
        match self {
            Self::Server(endpoint) => place(endpoint),
            Self::Primary(_) => "the address that the sentinels name".to_owned(),
        }
    }

    /// Whether credentials that are refused may be followed by others.
    pub(super) fn changes_credentials(&self) -> bool {
        match self {
            Self::Server(endpoint) => endpoint.changes(),
            Self::Primary(sentinels) => sentinels.server().changes(),
        }
    }

    /// Whether a replica is certainly the wrong server.
    fn is_elected(&self) -> bool {
        matches!(self, Self::Primary(_))
    }
}

async fn one(
    endpoint: &Endpoint,
    limits: ConnectionLimits,
    known: bool,
) -> Result<Wire, StoreError> {
    let known = known || endpoint.was_accepted();
    let connected = connect(endpoint, limits, None).await?;
    connected.map_err(|error| {
        let is_silence = error.is_timeout();
        let is_tls = matches!(
            endpoint.get_connection_info().addr(),
            ConnectionAddr::TcpTls { .. }
        );
        let error = connect_error(&place(endpoint), error, known);
        if is_silence && is_tls && !known {
            // A server without TLS takes the handshake for the start of a command, and waits for the rest.
            return error.with_hint("if this port does not speak TLS, write `redis://`");
        }
        error
    })
}

/// Checks the role that the server itself reports.
///
/// Sentinels may be late, and a server that is still being promoted refuses to write.
async fn is_primary(endpoint: &Endpoint, wire: Wire) -> Result<Wire, StoreError> {
    let hello = wire.send(&|words| words.command(&[&[b"HELLO"]]), None, false);
    let hello = hello.await.and_then(|hello| hello.first.extract_error());
    let at = place(endpoint);
    let hello = hello.map_err(|error| connect_error(&at, error, true))?;
    if text_pairs(hello).any(|(name, value)| name == "role" && value == "replica") {
        return Err(StoreError::new(
            StoreErrorKind::Unavailable,
            format!(
                "connecting to Redis at {at}: the server that the sentinels call the primary is a replica; \
                 wait for the failover to finish"
            ),
        ));
    }
    Ok(wire)
}
