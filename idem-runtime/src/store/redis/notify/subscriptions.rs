//! The watched keys of a server, and the state of their subscriptions.

use std::sync::{Arc, MutexGuard, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use redis::RedisError;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::channels::{Channels, Progress};
use crate::env::lock::Lock;
use crate::identity::operation::RecordKey;
use crate::store::redis::cluster::Cluster;
use crate::store::redis::link::Target;
use crate::store::redis::wire::ConnectionLimits;
use crate::store::{Feed, StoreError, Watch, Watchers};

/// Pause before a refused subscription is tried again.
const REFUSED: Duration = Duration::from_secs(60);

/// The watched keys of a server, and the state of their subscriptions.
pub(super) struct Subscriptions {
    pub(super) target: Target,
    /// The cluster of the server, which notifies only its own keys.
    pub(super) cluster: Option<Arc<Cluster>>,
    /// Scripts publish to the shard of the key alone.
    pub(super) sharded: bool,
    pub(super) limits: ConnectionLimits,
    pub(super) watchers: Watchers,
    pub(super) state: Lock<SubscriptionState>,
    /// Wakes the subscription task.
    pub(super) work: Notify,
}

/// The part of [`Subscriptions`] under its lock.
#[derive(Default)]
pub(super) struct SubscriptionState {
    pub(super) channels: Channels,
    /// The thread on which the subscription task runs.
    pub(super) host: Option<ThreadId>,
    /// Another engine's runtime, the task's successor when the first one's thread ends.
    pub(super) successor: Option<Handle>,
    /// Error of the last connection attempt, until the next one.
    pub(super) down: Option<StoreError>,
    /// When the server last refused a subscription.
    pub(super) refused: Option<Instant>,
    /// A poll found a change before its message arrived.
    pub(super) missed: bool,
    /// The store is closed.
    pub(super) closed: bool,
}

/// An unconfirmed watch, and the runtime for the missing subscription task.
pub(super) type PendingWatch = (Watch, watch::Receiver<Progress>, Option<Handle>);

impl Feed for Subscriptions {
    fn left(&self, key: &RecordKey) {
        self.lock().channels.left(key);
        self.work.notify_one();
    }

    fn missed(&self) {
        self.lock().missed = true;
        self.work.notify_one();
    }
}

impl Subscriptions {
    pub(super) fn new(
        target: Target,
        cluster: Option<Arc<Cluster>>,
        sharded: bool,
        limits: ConnectionLimits,
    ) -> Arc<Self> {
        Arc::new_cyclic(|subscriptions: &Weak<Self>| Self {
            target,
            cluster,
            sharded,
            limits,
            watchers: Watchers::fed_by(subscriptions.clone()),
            state: Lock::default(),
            work: Notify::new(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SubscriptionState> {
        self.state.lock()
    }

    /// Adds a watcher of the key. `None`: the server refuses subscriptions.
    pub(super) fn join(&self, key: &RecordKey) -> Result<Option<PendingWatch>, StoreError> {
        {
            let state = self.lock();
            if state.refused.is_some_and(|at| at.elapsed() < REFUSED) {
                return Ok(None);
            }
            if let Some(error) = &state.down {
                return Err(error.clone());
            }
        }
        // The watcher is counted before its channel is looked up, and the task reads the count under the lock. So it
        // does not unsubscribe from a channel that this watcher finds subscribed.
        let watch = self.watchers.watch(key);
        let here = Handle::current();
        let thread = std::thread::current().id();
        let mut state = self.lock();
        let starts = if state.host.is_none() {
            state.host = Some(thread);
            Some(here)
        } else {
            if state.host != Some(thread) {
                state.successor = Some(here);
            }
            None
        };
        let progress = state.channels.join(key);
        Ok(Some((watch, progress, starts)))
    }

    /// Waits for a watcher. Returns false once the store is closed.
    pub(super) async fn wait_for_watcher(&self) -> bool {
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
    pub(super) fn wake(&self, name: &str) {
        let key = self.lock().channels.key(name);
        if let Some(key) = key {
            self.watchers.wake(&key);
        }
    }

    pub(super) fn confirmed(&self, name: &str, request: u64) {
        let mut state = self.lock();
        state.refused = None;
        let lapsed = state.channels.confirmed(name, request);
        drop(state);
        if let Some(key) = lapsed {
            self.watchers.wake(&key);
        }
    }

    pub(super) fn refused(&self, name: &str, request: u64) {
        let mut state = self.lock();
        state.refused = Some(Instant::now());
        let lapsed = state.channels.refused(name, request);
        drop(state);
        if let Some(key) = lapsed {
            self.watchers.lapse(&key);
        }
    }

    /// Another node has the key of this channel.
    pub(super) fn moved(&self, name: &str, request: u64, error: &RedisError) {
        let key = self.lock().channels.moved(name, request);
        if let (Some(cluster), Target::Server(said_by)) = (&self.cluster, &self.target) {
            cluster.follow(name, error, said_by);
        }
        if let Some(key) = key {
            self.watchers.lapse(&key);
        }
    }

    /// No connection can be made for now.
    pub(super) fn failed(&self, error: StoreError) {
        {
            let mut state = self.lock();
            state.channels.lost();
            state.channels.failed(&error);
            state.down = Some(error);
        }
        if let Some(cluster) = &self.cluster {
            // Another node may have its keys by now.
            cluster.mark_outdated();
            self.watchers.lapse_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::key::KeyDigest;
    use crate::identity::operation::Operation;
    use crate::store::redis::endpoint::Endpoint;
    use crate::store::redis::notify::channels::ChannelCommand;

    impl Subscriptions {
        /// Of an address that is never connected to.
        pub(crate) fn unconnected(sharded: bool) -> Arc<Self> {
            let client = redis::Client::open("redis://127.0.0.1:1").expect("it is a URL");
            let target = Target::Server(Box::new(Endpoint::new(client, None)));
            let limits = ConnectionLimits {
                connect: Duration::ZERO,
                response: Duration::ZERO,
                text_bytes: 0,
            };
            Self::new(target, None, sharded, limits)
        }
    }

    /// Finds a watcher that sleeps on when the next subscription is refused.
    #[tokio::test]
    async fn a_refusal_ends_the_watches_of_an_earlier_connection() {
        let subscriptions = Subscriptions::unconnected(false);
        let digest = KeyDigest::from_bytes([1; 32]);
        let key = RecordKey::new("test".into(), Operation::new("watched"), digest);
        let pending = subscriptions.join(&key).expect("there is no error yet");
        let (mut watch, ..) = pending.expect("nothing is refused yet");
        let requested = || match subscriptions.lock().channels.next_command(|_| true) {
            Some(ChannelCommand::Subscribe { name, request }) => (name, request),
            other => panic!("a subscription is requested, not {other:?}"),
        };
        let (name, request) = requested();
        subscriptions.confirmed(&name, request);
        subscriptions.lock().channels.lost();
        let (name, request) = requested();
        subscriptions.refused(&name, request);
        watch.changed().await;
        assert!(watch.has_lapsed());
    }
}
