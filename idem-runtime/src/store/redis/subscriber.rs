//! Notification by Redis: one connection that subscribes to the watched keys.
//!
//! The scripts that finish a call publish an empty message on a channel named like its record. One
//! task, on the thread of the engine that watched first, keeps a connection subscribed to the keys
//! that are watched in this process, through this store.
//!
//! A connection that breaks is made again, all channels are subscribed again, and earlier
//! watchers are woken, since a message may have been lost. A silent connection looks like an idle
//! one. Therefore, while a key is watched, the server is pinged every few
//! seconds: a tiny command, seldom sent, that detects the silence before a waiting
//! call suffers from it and keeps the connection alive in networks that drop idle ones. A failure that a
//! ping cannot detect (the old server of a failover still answers) is reported by a poll that finds a change before its
//! message arrives. Without a message before the reply to one more ping, the connection is made again.

mod channels;
mod session;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use redis::RedisError;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use self::channels::{Channels, Progress};
use self::session::{End, Session};
use self::wire::Wire;
use super::cluster::Cluster;
use super::link::{Patience, Target};
use crate::env::backoff::Backoff;
use crate::identity::operation::RecordKey;
use crate::record::Owner;
use crate::store::{Feed, StoreError, StoreErrorKind, Watch, Watchers};

/// How long a refused subscription is not tried again.
const REFUSED: Duration = Duration::from_mins(1);

/// Where the notifications of a key come from.
pub(super) enum Told {
    Here(Watch),
    /// Another node has the key.
    Elsewhere,
    /// The server refuses the subscription.
    Never,
}

/// Notifies the watchers of keys. Its task ends with it.
pub(super) struct Subscriber(Arc<Shared>);

struct Shared {
    target: Target,
    /// The cluster of the server, which notifies only its own keys.
    cluster: Option<Arc<Cluster>>,
    sharded: bool,
    patience: Patience,
    watchers: Watchers,
    state: Mutex<State>,
    work: Notify,
}

#[derive(Default)]
struct State {
    channels: Channels,
    /// The thread on which the task was started.
    host: Option<ThreadId>,
    /// Runtime that takes the task over when the first one's thread ends: that of another watching engine.
    successor: Option<Handle>,
    /// Why there is no connection, while it is too early to try again.
    down: Option<StoreError>,
    /// When the server last refused a subscription.
    refused: Option<Instant>,
    missed: bool,
    closed: bool,
}

impl Subscriber {
    /// Creates one that connects when the first key is watched. `sharded`: the scripts publish to the
    /// key's shard alone.
    pub(super) fn new(
        target: Target,
        cluster: Option<Arc<Cluster>>,
        sharded: bool,
        patience: Patience,
    ) -> Self {
        Self(Arc::new_cyclic(|shared: &Weak<Shared>| Shared {
            target,
            cluster,
            sharded,
            patience,
            watchers: Watchers::fed_by(shared.clone()),
            state: Mutex::default(),
            work: Notify::new(),
        }))
    }

    /// Watches a key, from the server's confirmation on.
    ///
    /// # Errors
    ///
    /// At once while there is no connection, and when the server does not reply in time.
    pub(super) async fn watch(&self, key: &RecordKey) -> Result<Told, StoreError> {
        let Some((watch, mut progress)) = self.0.begin(key)? else {
            return Ok(Told::Never);
        };
        let settled = progress.wait_for(Progress::is_settled);
        match timeout(self.0.patience.response, settled).await {
            Ok(Ok(progress)) => match &*progress {
                Progress::Refused => Ok(Told::Never),
                Progress::Moved => Ok(Told::Elsewhere),
                Progress::Failed(error) => Err(error.clone()),
                Progress::Heard | Progress::Asked => Ok(Told::Here(watch)),
            },
            Ok(Err(_)) | Err(_) => Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "watching a key: Redis did not confirm the subscription in time",
            )),
        }
    }

    /// The target of its connection.
    pub(super) fn target(&self) -> &Target {
        &self.0.target
    }

    pub(super) fn patience(&self) -> Patience {
        self.0.patience
    }

    /// Whether no key is watched here.
    pub(super) fn is_idle(&self) -> bool {
        self.0.watchers.is_idle()
    }

    /// The operator's warning, if there is one.
    pub(super) fn warning(&self) -> Option<String> {
        self.0.lock().refused.map(|_| UNTOLD.to_owned())
    }
}

const UNTOLD: &str = "Redis does not let this user subscribe, so that waiting calls ask again and \
                      again; see the rights in the documentation of `RedisStore`";

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_one();
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("watchers", &self.0.watchers)
            .finish_non_exhaustive()
    }
}

impl Feed for Shared {
    fn left(&self, key: &RecordKey) {
        self.lock().channels.left(key);
        self.work.notify_one();
    }

    fn missed(&self) {
        self.lock().missed = true;
        self.work.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; if it did, the maps would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(
        self: &Arc<Self>,
        key: &RecordKey,
    ) -> Result<Option<(Watch, watch::Receiver<Progress>)>, StoreError> {
        {
            let state = self.lock();
            if state.refused.is_some_and(|at| at.elapsed() < REFUSED) {
                return Ok(None);
            }
            if let Some(error) = &state.down {
                return Err(error.clone());
            }
        }
        // Counted before the channel is looked up, while the task reads the count under the lock: so it
        // does not give up a channel that this watch finds subscribed.
        let watch = self.watchers.watch(key);
        let here = Handle::current();
        let thread = std::thread::current().id();
        let (progress, starts) = {
            let mut state = self.lock();
            let starts = state.host.is_none();
            if starts {
                state.host = Some(thread);
            } else if state.host != Some(thread) {
                state.successor = Some(here.clone());
            }
            (state.channels.join(key), starts)
        };
        if starts {
            here.spawn(run(Task(Arc::clone(self))));
        }
        self.work.notify_one();
        Ok(Some((watch, progress)))
    }

    /// Waits for a watcher. Returns false once the store is closed.
    async fn somebody_watches(&self) -> bool {
        loop {
            {
                let mut state = self.lock();
                if state.closed {
                    return false;
                }
                if state.channels.any(|key| self.watchers.is_watched(key)) {
                    return true;
                }
            }
            self.work.notified().await;
        }
    }

    /// Wakes the watchers of a channel's key.
    fn tell(&self, name: &str) {
        let key = self.lock().channels.key(name);
        if let Some(key) = key {
            self.watchers.wake(&key);
        }
    }

    fn confirmed(&self, name: &str, request: u64) {
        let mut state = self.lock();
        state.refused = None;
        let lapsed = state.channels.confirmed(name, request);
        drop(state);
        if let Some(key) = lapsed {
            self.watchers.wake(&key);
        }
    }

    fn refused(&self, name: &str, request: u64) {
        let mut state = self.lock();
        state.refused = Some(Instant::now());
        state.channels.refused(name, request);
    }

    /// Another node has the key of this channel.
    fn moved(&self, name: &str, request: u64, error: &RedisError) {
        let key = self.lock().channels.moved(name, request);
        if let (Some(cluster), Target::Server(said_by)) = (&self.cluster, &self.target) {
            cluster.follow(name, error, said_by);
        }
        if let Some(key) = key {
            self.watchers.lapse(&key);
        }
    }

    /// There is no connection for now.
    fn failed(&self, error: StoreError) {
        {
            let mut state = self.lock();
            state.channels.lost();
            state.channels.failed(&error);
            state.down = Some(error);
        }
        if let Some(cluster) = &self.cluster {
            // Another node may have its keys by now.
            cluster.doubt();
            self.watchers.lapse_all();
        }
    }
}

/// The subscription task. A runtime that ends drops it.
struct Task(Arc<Shared>);

async fn run(task: Task) {
    let shared = &*task.0;
    let mut backoff = Backoff::new(&Owner::random());
    let mut replaced = None;
    shared.lock().host = Some(std::thread::current().id());
    while shared.somebody_watches().await {
        let generation = shared.target.generation();
        match Wire::open(&shared.target, shared.sharded, shared.patience).await {
            Ok(wire) => match Session::new(shared, wire, generation)
                .serve(&mut backoff, &mut replaced)
                .await
            {
                End::Closed => return,
                End::Missed => {
                    shared.lock().channels.lost();
                    continue;
                }
                End::Lost => shared.lock().channels.lost(),
                End::Failed(error) => shared.failed(error),
            },
            Err(error) => shared.failed(error),
        }
        sleep(backoff.reconnect()).await;
        shared.lock().down = None;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.host = None;
        state.down = None;
        state.channels.lost();
        let wanted = state.channels.any(|key| self.0.watchers.is_watched(key));
        // Without a successor the next call that watches starts another task.
        let successor = state.successor.take().filter(|_| wanted && !state.closed);
        if let Some(successor) = successor {
            state.host = Some(std::thread::current().id());
            drop(state);
            successor.spawn(run(Self(Arc::clone(&self.0))));
        }
    }
}
