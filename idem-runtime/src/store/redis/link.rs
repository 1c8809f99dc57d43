//! A connection that reconnects when it breaks, falls silent or reaches a replica.

mod command;
mod exchange;
mod pipeline;
mod target;
mod time;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::{RedisError, Value};

pub(super) use self::command::{Kept, Order};
use self::pipeline::Lane;
pub(super) use self::target::Target;
use self::time::ServerTime;
use super::failure::{Failure, breaks_connection, connect_error, is_silence, leads_astray};
use super::reply::time_of;
use super::timeouts::Patience;
use crate::store::pace::Crowded;
use crate::store::server_clock::ServerClock;
use crate::store::{Admission, StoreError};

/// Time-outs in a row after which a connection is dropped: the server may be gone without a
/// notice from the network, and the client library keeps such a connection for ever.
const SILENT: u32 = 3;
/// How long a cancelled command must have waited to count among them.
const QUIET: Duration = Duration::from_millis(100);
/// Pause after a failed attempt to connect. With it, a thousand calls that retry cost a starting
/// server, or its sentinels, no more than one.
const PAUSE: Duration = Duration::from_millis(20);
/// Age at which a connection to a replica is made again: its address may mean another server
/// by now, and if it does not, connecting again and again does not help.
const ASTRAY: Duration = Duration::from_secs(1);

/// A connection, made on first use and again when no longer usable.
///
/// Its driver runs on the runtime that made it.
pub(super) struct Link {
    target: Target,
    patience: Patience,
    live: Mutex<Option<Arc<Live>>>,
    /// One task at a time connects; the others wait for its result.
    connecting: tokio::sync::Mutex<()>,
    /// The error and time of the last failed attempt to connect. Calls that waited for it share its failure
    /// instead of trying again, one after the other.
    failure: Mutex<Option<(StoreError, Instant)>>,
    /// A connection was made before, so that the URL is right, or was.
    known: AtomicBool,
    /// The server's clock.
    clock: Arc<ServerClock>,
}

/// A connection and its health.
struct Live {
    lane: Lane,
    generation: u64,
    since: Instant,
    /// Time-outs in a row.
    timeouts: AtomicU32,
    /// Number of replies.
    replies: AtomicU64,
    /// The server has replied on it; an accepted connection alone does not count.
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
    /// unknown; the scripts make that harmless.
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
                    // The peer accepts connections and closes them: a balancer without a server.
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

    /// Counts a time-out, if no reply arrived since `replies` was read. A connection that replies to other commands
    /// is not silent: the command waited in a queue, or the server is busy.
    fn silent(&self, live: &Live, replies: u64) {
        if live.replies.load(Ordering::Relaxed) != replies {
            return;
        }
        if live.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT {
            self.drop_connection(live);
        }
    }

    /// The server's time in microseconds, if it is known on this connection.
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
        // Read before connecting: a change in between is noticed at the next command.
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

    /// Drops this connection, unless another has replaced it already.
    fn drop_connection(&self, broken: &Live) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live
            .as_ref()
            .is_some_and(|live| std::ptr::eq(Arc::as_ptr(live), broken))
        {
            *live = None;
        }
        drop(live);
        // Queued commands were not sent, and go over the next connection.
        broken.lane.abandon();
    }

    /// Why a claim cannot be sent in time, if so.
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

/// A command without a reply so far. Its sender may cancel it before `response_timeout` is over, because its
/// own deadline is shorter; that counts as silence as well.
struct Unanswered<'a> {
    link: &'a Link,
    live: &'a Live,
    began: Instant,
    is_answered: bool,
    /// Number of replies when the command was sent.
    replies: u64,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.began.elapsed() >= QUIET {
            self.link.silent(self.live, self.replies);
        }
    }
}
