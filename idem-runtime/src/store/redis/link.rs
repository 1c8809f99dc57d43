//! One connection to Redis that is made again when it breaks, falls silent or leads astray.

mod lane;
mod target;
mod time;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, Value};

use self::lane::{Lane, Replies};
pub(super) use self::target::{Patience, Target};
use self::time::ServerTime;
use super::failure::{
    breaks_connection, connect_error, hangs_up, is_silence, leads_astray, store_error,
};
use super::script::{time_of, wrote};
use crate::store::pace::Crowded;
use crate::store::server_clock::ServerClock;
use crate::store::{Admission, StoreError, StoreErrorKind};

/// Time-outs in a row after which a connection is given up: the server may be gone without the
/// network having said so, and the client library keeps such a connection for ever.
const SILENT: u32 = 3;
/// How long a command that its sender gives up must have waited to count among them.
const QUIET: Duration = Duration::from_millis(100);
/// How long nobody tries to connect after that has failed: a thousand calls that try again and again
/// are no more to a server that starts, or to its sentinels, than one.
const PAUSE: Duration = Duration::from_millis(20);
/// How old a connection to a replica must be to be made again: its address may mean another server
/// by now, and if it does not, connecting again and again does not help.
const ASTRAY: Duration = Duration::from_secs(1);

/// A connection, made when it is first needed and made again when it is of no more use.
///
/// Its driver runs on the runtime of whoever made it.
pub(super) struct Link {
    target: Target,
    patience: Patience,
    live: Mutex<Option<Arc<Live>>>,
    /// One task at a time connects; the others wait for what it finds.
    connecting: tokio::sync::Mutex<()>,
    /// Why the last attempt to connect failed, and when. Whoever waited for it shares its failure
    /// instead of trying again, one after the other.
    failure: Mutex<Option<(StoreError, Instant)>>,
    /// A connection was made before, so that the URL is right, or was.
    known: AtomicBool,
    /// Of the server.
    clock: Arc<ServerClock>,
}

/// A connection, and how it goes with it.
struct Live {
    lane: Lane,
    generation: u64,
    since: Instant,
    /// Commands in a row without a reply.
    timeouts: AtomicU32,
    /// Replies so far.
    replies: AtomicU64,
    /// The server has replied on it, so that this is more than an open door.
    works: AtomicBool,
    time: ServerTime,
}

impl Link {
    pub(super) fn new(target: Target, patience: Patience, clock: Arc<ServerClock>) -> Self {
        Self {
            target,
            patience,
            live: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            failure: Mutex::default(),
            known: AtomicBool::new(false),
            clock,
        }
    }

    /// Sends a command and waits for its reply. Whether a command without a reply was executed is
    /// not known; the scripts make that harmless.
    pub(super) async fn send(&self, order: &Order<'_>) -> Result<Value, Failure> {
        let live = match self.current() {
            Some(live) => live,
            // Boxed: it is larger, and seldom needed.
            None => Box::pin(self.connected()).await.map_err(Failure::Connect)?,
        };
        let live = &*live;
        let mut unanswered = Unanswered {
            link: self,
            live,
            began: Instant::now(),
            is_answered: false,
            replies: live.replies.load(Ordering::Relaxed),
        };
        let reply = order.send(&live.lane).await;
        unanswered.is_answered = true;
        let began = unanswered.began;
        if order.tells_time
            && let Ok(reply) = &reply
            && let Some(micros) = time_of(reply)
        {
            live.time.is(micros, began.elapsed());
            self.clock.says(micros, began);
        }
        match &reply {
            Err(Failure::Reply(error)) if is_silence(error) => {
                self.silent(live, unanswered.replies);
            }
            reply => {
                live.replies.fetch_add(1, Ordering::Relaxed);
                if live.timeouts.load(Ordering::Relaxed) != 0 {
                    live.timeouts.store(0, Ordering::Relaxed);
                }
                if let Err(Failure::Reply(error)) = reply
                    && self.is_of_no_use(live, error)
                {
                    self.drop_connection(live);
                    // Somebody accepts connections and hangs up: a balancer without a server.
                    if !live.works.load(Ordering::Relaxed) {
                        self.failed(connect_error(error.clone(), true));
                    }
                } else if !live.works.load(Ordering::Relaxed) {
                    live.works.store(true, Ordering::Relaxed);
                }
            }
        }
        reply
    }

    fn failed(&self, error: StoreError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *failure = Some((error, Instant::now()));
    }

    fn is_of_no_use(&self, live: &Live, error: &RedisError) -> bool {
        breaks_connection(error)
            || leads_astray(error) && (self.target.is_elected() || live.since.elapsed() >= ASTRAY)
    }

    /// Counts a command without a reply, since there were so many. A connection that replies to others is not
    /// silent: the command waited in a queue, or the server is busy.
    fn silent(&self, live: &Live, replies: u64) {
        if live.replies.load(Ordering::Relaxed) != replies {
            return;
        }
        if live.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT {
            self.drop_connection(live);
        }
    }

    /// The time of the server in microseconds, as far as it is known on this connection.
    pub(super) fn server_time(&self) -> Option<u64> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let live = live.as_ref()?;
        let is_current = live.generation == self.target.generation();
        is_current.then(|| live.time.now()).flatten()
    }

    fn current(&self) -> Option<Arc<Live>> {
        self.target.tend(self.patience);
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let live = live.as_ref()?;
        (live.generation == self.target.generation()).then(|| Arc::clone(live))
    }

    async fn connected(&self) -> Result<Arc<Live>, StoreError> {
        let _connecting = self.connecting.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        {
            let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((error, at)) = &*failure
                && at.elapsed() < PAUSE
            {
                return Err(error.clone());
            }
        }
        // Looked at before: what changes meanwhile is noticed at the next command.
        let generation = self.target.generation();
        let known = self.known.load(Ordering::Relaxed);
        match self.target.connect(self.patience, known).await {
            Ok(connection) => {
                self.known.store(true, Ordering::Relaxed);
                let live = Arc::new(Live {
                    lane: Lane::new(connection),
                    generation,
                    since: Instant::now(),
                    timeouts: AtomicU32::new(0),
                    replies: AtomicU64::new(0),
                    works: AtomicBool::new(false),
                    time: ServerTime::default(),
                });
                *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&live));
                Ok(live)
            }
            Err(error) => {
                self.failed(error.clone());
                Err(error)
            }
        }
    }

    /// Forgets this connection, unless another has taken its place already.
    fn drop_connection(&self, broken: &Live) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live
            .as_ref()
            .is_some_and(|live| std::ptr::eq(Arc::as_ptr(live), broken))
        {
            *live = None;
        }
        drop(live);
        // What waits for its turn was not sent, and goes over the next connection.
        broken.lane.abandon();
    }

    /// Why a claim could not be sent in time, if it could not.
    pub(super) fn crowded(&self, admission: &Admission) -> Option<Crowded> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.as_ref()?.lane.crowded(admission)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("connected", &self.current().is_some())
            .finish_non_exhaustive()
    }
}

/// A command on its way. Its sender may give it up before `response_timeout` is over, because its
/// own deadline is shorter; that is silence as well.
struct Unanswered<'a> {
    link: &'a Link,
    live: &'a Live,
    began: Instant,
    is_answered: bool,
    /// How many replies there were then.
    replies: u64,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.began.elapsed() >= QUIET {
            self.link.silent(self.live, self.replies);
        }
    }
}

/// A command that is made where it is sent from, and moves on from there: kept in a call it would be
/// copied for each of the ways that it may take.
pub(super) type Making<'a> = dyn Fn() -> Cmd + Send + Sync + 'a;

/// What is sent at once.
#[derive(Clone, Copy)]
pub(super) enum Sent<'a> {
    One(&'a Making<'a>),
    /// Not to a node that is only about to get the slot: it would have
    /// to be asked for each of them.
    Both(&'a Making<'a>, &'a Making<'a>),
}

/// A command, and what goes with it.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) sent: Sent<'a>,
    /// What it is about, if it is about a key.
    pub(super) key: Option<&'a str>,
    /// The node is only about to get the key's slot, and serves it to those who say that they know.
    pub(super) asking: bool,
    /// Its reply ends with the server's time.
    pub(super) tells_time: bool,
    /// It claims: what ends or keeps a claim goes ahead of it.
    pub(super) claims: bool,
    /// What it writes is to be on so many replicas before it counts.
    pub(super) kept: Option<&'a Kept>,
}

impl<'a> Order<'a> {
    pub(super) fn new(command: &'a Making<'a>) -> Self {
        Self::of(None, Sent::One(command))
    }

    /// A command about this key.
    pub(super) fn about(key: &'a str, command: &'a Making<'a>) -> Self {
        Self::of(Some(key), Sent::One(command))
    }

    /// Two commands, one right behind the other. The reply is that of the second, or the first error.
    pub(super) fn both(key: &'a str, first: &'a Making<'a>, second: &'a Making<'a>) -> Self {
        Self::of(Some(key), Sent::Both(first, second))
    }

    fn of(key: Option<&'a str>, sent: Sent<'a>) -> Self {
        Self {
            sent,
            key,
            asking: false,
            tells_time: false,
            claims: false,
            kept: None,
        }
    }

    /// Whether it can be sent to a node that is only about to get the slot.
    pub(super) fn is_one(&self) -> bool {
        matches!(self.sent, Sent::One(_))
    }

    async fn send(&self, lane: &Lane) -> Result<Value, Failure> {
        let reply = match self.sent {
            Sent::Both(first, second) => both(lane, first, second).await?,
            // A user without the right to ask would be sent to and fro for ever: the first error counts.
            Sent::One(command) if self.asking => {
                both(lane, &|| redis::cmd("ASKING"), command).await?
            }
            Sent::One(command) => one(lane, command, self.claims).await?,
        };
        match self.kept {
            // `WAIT` is about what this very connection wrote.
            Some(kept) if wrote(&reply) => {
                let replicas = Box::pin(one(lane, &|| kept.command.clone(), false)).await?;
                kept.judge(&replicas).map(|()| reply)
            }
            _ => Ok(reply),
        }
    }
}

async fn one(lane: &Lane, command: &Making<'_>, claims: bool) -> Result<Value, Failure> {
    let replies = lane.send(command, None, claims).await;
    replied(replies.map_err(Failure::Reply)?.first)
}

/// Sends two commands, one right behind the other. The last reply, or the first error.
async fn both(lane: &Lane, first: &Making<'_>, second: &Making<'_>) -> Result<Value, Failure> {
    let replies = lane.send(first, Some(second), false).await;
    let Replies { first, second } = replies.map_err(Failure::Reply)?;
    let first = replied(first)?;
    second.map_or(Ok(first), replied)
}

fn replied(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(error) => Err(Failure::Reply(error.into())),
        value => Ok(value),
    }
}

/// On how many replicas a write is to be.
#[derive(Debug)]
pub(super) struct Kept {
    wanted: u32,
    command: Cmd,
}

impl Kept {
    /// Waits for the replicas for half of the time that a reply may take, so that the reply comes and
    /// says how many they are.
    pub(super) fn by(wanted: u32, patience: Patience) -> Self {
        let millis = (patience.response / 2).as_millis().max(1);
        let mut command = redis::cmd("WAIT");
        command.arg(wanted).arg(millis.to_string());
        Self { wanted, command }
    }

    fn judge(&self, replicas: &Value) -> Result<(), Failure> {
        let replicas = match replicas {
            Value::Int(replicas) => u32::try_from(*replicas).unwrap_or_default(),
            _ => 0,
        };
        if replicas >= self.wanted {
            return Ok(());
        }
        Err(Failure::Unreplicated {
            replicas,
            wanted: self.wanted,
        })
    }
}

/// Why a command has no reply.
pub(super) enum Failure {
    /// There is no connection; nothing was sent.
    Connect(StoreError),
    /// The server's error, or none in time.
    Reply(RedisError),
    /// It was executed, and fewer replicas than asked for have it.
    Unreplicated { replicas: u32, wanted: u32 },
}

impl Failure {
    /// The server ended the connection without a word.
    pub(super) fn hangs_up(&self) -> bool {
        matches!(self, Self::Reply(error) if hangs_up(error))
    }

    pub(super) fn store_error(self, what: &str) -> StoreError {
        match self {
            Self::Connect(error) => error,
            Self::Reply(error) => store_error(what, error),
            Self::Unreplicated { replicas, wanted } => StoreError::new(
                StoreErrorKind::Unavailable,
                format!(
                    "{what}: {replicas} of {wanted} replicas have it, so that a failover could \
                     forget it; look at the replicas and their links \
                     (`durability` is `replicated({wanted})`)"
                ),
            )
            .answered(),
        }
    }
}
