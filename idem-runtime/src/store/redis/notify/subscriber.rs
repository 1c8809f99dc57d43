//! Notification of watchers: one connection that subscribes to the watched keys.
//!
//! The scripts that end a claim publish an empty message on a channel named like the record. One task, on the thread
//! of the engine that watched first, keeps a connection subscribed to the keys that this process watches through this
//! store.
//!
//! When a connection breaks, the task makes another, subscribes all channels again and wakes earlier watchers, because
//! a message may have been lost. A silent connection looks like an idle one, so while a key is watched the task pings
//! the server every few seconds, which also keeps the connection alive in networks that drop idle ones. A ping cannot
//! detect every failure: the old primary of a failover still replies. Then a poll finds a change before its message
//! arrives, and the task sends one more ping. If no message arrives before its reply, the connection is replaced.

use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::channels::Progress;
use super::session::{Session, SessionEnd};
use super::subscriptions::Subscriptions;
use crate::env::backoff::Backoff;
use crate::identity::operation::RecordKey;
use crate::record::Owner;
use crate::store::redis::address::place;
use crate::store::redis::cluster::Cluster;
use crate::store::redis::failure::connect_error;
use crate::store::redis::limits::Limits;
use crate::store::redis::link::Target;
use crate::store::redis::subscriber_connection::SubscriberConnection;
use crate::store::{StoreError, StoreErrorKind, Watch};

/// Outcome of a request to watch a key.
pub(super) enum WatchOutcome {
    Subscribed(Watch),
    /// Another node has the key.
    Moved,
    /// The server refuses the subscription.
    Refused,
}

/// Notifies the watchers of keys on one server. Its task ends when it is dropped.
pub(crate) struct Subscriber(Arc<Subscriptions>);

impl Subscriber {
    /// Creates a subscriber, which connects at the first watch.
    ///
    /// `sharded`: scripts publish to the shard of the key alone.
    pub(super) fn new(
        target: Target,
        cluster: Option<Arc<Cluster>>,
        sharded: bool,
        limits: Limits,
    ) -> Self {
        Self(Subscriptions::new(target, cluster, sharded, limits))
    }

    /// Watches a key, from the server's confirmation on.
    ///
    /// # Errors
    ///
    /// At once while there is no connection, and when the server does not reply in time.
    pub(super) async fn watch(&self, key: &RecordKey) -> Result<WatchOutcome, StoreError> {
        let Some((watch, mut progress, starts)) = self.0.join(key)? else {
            return Ok(WatchOutcome::Refused);
        };
        if let Some(runtime) = starts {
            runtime.spawn(run(SubscriptionTask(Arc::clone(&self.0))));
        }
        self.0.work.notify_one();
        let settled = progress.wait_for(Progress::is_settled);
        match timeout(self.0.limits.response, settled).await {
            Ok(Ok(progress)) => match &*progress {
                Progress::Refused => Ok(WatchOutcome::Refused),
                Progress::Moved => Ok(WatchOutcome::Moved),
                Progress::Failed(error) => Err(error.clone()),
                Progress::Confirmed | Progress::Requested => Ok(WatchOutcome::Subscribed(watch)),
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

    pub(super) fn limits(&self) -> Limits {
        self.0.limits
    }

    /// Whether no key is watched here.
    pub(super) fn is_idle(&self) -> bool {
        self.0.watchers.is_idle()
    }

    /// The operator's warning, if there is one.
    pub(super) fn warning(&self) -> Option<String> {
        self.0.lock().refused.map(|_| REFUSED_WARNING.to_owned())
    }
}

const REFUSED_WARNING: &str = "Redis does not let this user subscribe, so that waiting calls ask again and \
                      again; see the rights in the documentation of `RedisStore`";

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_one();
    }
}

debug_fields!(Subscriber {});

/// The subscription task. Its runtime drops it when it ends.
struct SubscriptionTask(Arc<Subscriptions>);

async fn run(task: SubscriptionTask) {
    let subscriptions = &*task.0;
    let mut backoff = Backoff::new(&Owner::random());
    let mut replaced = None;
    subscriptions.lock().host = Some(std::thread::current().id());
    while subscriptions.wait_for_watcher().await {
        let generation = subscriptions.target.generation();
        match connect(&subscriptions.target, subscriptions.limits).await {
            Ok(connection) => match Session::new(subscriptions, connection, generation)
                .serve(&mut backoff, &mut replaced)
                .await
            {
                SessionEnd::Closed => return,
                SessionEnd::Missed => {
                    subscriptions.lock().channels.lost();
                    continue;
                }
                SessionEnd::Lost => subscriptions.lock().channels.lost(),
                SessionEnd::Failed(error) => subscriptions.failed(error),
            },
            Err(error) => subscriptions.failed(error),
        }
        sleep(backoff.reconnect()).await;
        subscriptions.lock().down = None;
    }
}

/// Connects to the server of a target, for subscriptions.
pub(super) async fn connect(
    target: &Target,
    limits: Limits,
) -> Result<SubscriberConnection, StoreError> {
    let endpoint = target.endpoint(limits).await?;
    let opened = SubscriberConnection::open(&endpoint, limits).await?;
    opened.map_err(|error| connect_error(&place(&endpoint), error, true))
}

impl Drop for SubscriptionTask {
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
