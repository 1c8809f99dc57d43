//! Notification of caches: a connection that subscribes to the resolutions of one prefix.
//!
//! The script that resolves a key publishes the name of its record by a plain `PUBLISH`, which in a cluster reaches
//! every node, so that one node suffices. A broken connection is detected at once; a silent one within [`QUIET`] and
//! the time limit of a reply, by a ping. Until there is another connection the listener receives no resolutions, and
//! is notified of that.

use std::str::FromStr as _;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::subscriber::{Subscribers, connect};
use crate::env::backoff::Backoff;
use crate::identity::key::KeyDigest;
use crate::record::Owner;
use crate::store::redis::failure::{is_lost, store_error};
use crate::store::redis::link::{RoutedCommand, Target};
use crate::store::redis::server::WriteConcern;
use crate::store::redis::subscriber_connection::SubscriberConnection;
use crate::store::redis::topology::Topology;
use crate::store::redis::wire::ConnectionLimits;
use crate::store::redis::wire::{Published, Words};
use crate::store::{Hearing, Listener, StoreError, StoreErrorKind};

/// Silence after which the server is pinged.
const QUIET: Duration = Duration::from_secs(1);
/// Pause before a refused subscription is tried again.
const REFUSED: Duration = Duration::from_secs(60);

/// The channel of a prefix's resolutions. No record has such a name.
pub(crate) fn channel(prefix: &str) -> String {
    format!("{prefix}:resolved")
}

/// Delivers the resolutions of a prefix to a listener.
pub(crate) struct ResolutionListener {
    subscribers: Weak<Subscribers>,
    prefix: Arc<str>,
    channel: String,
    listener: Weak<dyn Listener>,
}

/// A subscribed connection.
struct ResolutionConnection {
    connection: SubscriberConnection,
    target: Target,
    generation: u64,
}

impl ResolutionListener {
    pub(crate) fn new(
        subscribers: &Arc<Subscribers>,
        prefix: &Arc<str>,
        listener: Weak<dyn Listener>,
    ) -> Self {
        Self {
            subscribers: Arc::downgrade(subscribers),
            prefix: Arc::clone(prefix),
            channel: channel(prefix),
            listener,
        }
    }

    fn hearing(&self, hearing: Hearing) {
        if let Some(listener) = self.listener.upgrade() {
            listener.hearing(hearing);
        }
    }

    fn warn(&self, may_not: &str, so_that: &str) {
        if let Some(listener) = self.listener.upgrade() {
            listener.warn(&format!(
                "this Redis user may not {may_not} `{}`, so that {so_that} for as long as its \
                 `max_age`; see the rights in the documentation of `RedisStore`",
                self.channel
            ));
        }
    }

    /// Warns if this process cannot publish its resolutions.
    ///
    /// `topology`: connections that the runtime of this thread drives.
    pub(crate) async fn try_to_publish(&self, topology: &Topology) {
        // No record has an empty name.
        let publish =
            |words: &mut Words<'_>| words.command(&[&[b"PUBLISH", self.channel.as_bytes(), b""]]);
        let command = RoutedCommand::on_key(&self.channel, &publish);
        let sent = topology.send(&command, WriteConcern::Local);
        if let Err(failure) = sent.await
            && failure.store_error("publishing").kind() == StoreErrorKind::Refused
        {
            self.warn(
                "publish to",
                "an answer that this process takes back may still be replayed by a local cache \
                 elsewhere",
            );
        }
    }

    /// Delivers resolutions as long as the listener exists.
    pub(crate) async fn follow(self) {
        let _guard = HearingGuard(Weak::clone(&self.listener));
        let mut backoff = Backoff::new(&Owner::random());
        let mut warned = false;
        loop {
            let Some(subscribers) = self.subscribers.upgrade() else {
                return;
            };
            let limits = subscribers.limits();
            let target = subscribers.broadcast_target(&self.channel).await;
            drop(subscribers);
            let opened = match target {
                Ok(target) => self.open(target, limits).await,
                Err(error) => Err(error),
            };
            let pause = match opened {
                Ok(connection) => {
                    backoff = Backoff::new(&Owner::random());
                    warned = false;
                    self.hearing(Hearing::All);
                    let goes_on = self.deliver(connection).await;
                    self.hearing(Hearing::Nothing);
                    if !goes_on {
                        return;
                    }
                    self.mark_outdated();
                    Duration::ZERO
                }
                Err(error) if error.is_transient() => {
                    self.mark_outdated();
                    backoff.reconnect()
                }
                Err(_) => {
                    self.hearing(Hearing::Never);
                    if !std::mem::replace(&mut warned, true) {
                        self.warn(
                            "subscribe to",
                            "the local cache may replay an answer that another process takes back",
                        );
                    }
                    REFUSED
                }
            };
            sleep(pause).await;
        }
    }

    fn mark_outdated(&self) {
        if let Some(subscribers) = self.subscribers.upgrade() {
            subscribers.mark_outdated();
        }
    }

    /// Opens a connection on which the server has confirmed the subscription.
    async fn open(
        &self,
        target: Target,
        limits: ConnectionLimits,
    ) -> Result<ResolutionConnection, StoreError> {
        let generation = target.generation();
        let connection = connect(&target, limits).await?;
        let subscribed = connection.subscribe(&self.channel).await;
        subscribed.map_err(|error| store_error("listening to resolutions", error))?;
        Ok(ResolutionConnection {
            connection,
            target,
            generation,
        })
    }

    /// Delivers resolutions until the connection is no longer usable. Returns whether the listener still exists.
    async fn deliver(&self, mut listening: ResolutionConnection) -> bool {
        loop {
            // The old primary of a failover may still be connected.
            if listening.target.generation() != listening.generation {
                return true;
            }
            match timeout(QUIET, listening.connection.message()).await {
                Ok(Some(message)) => {
                    let Some(listener) = self.listener.upgrade() else {
                        return false;
                    };
                    if let Some(key) = self.key(&message) {
                        listener.resolved(&key);
                    }
                }
                Ok(None) => return true,
                Err(_) => {
                    if self.listener.strong_count() == 0 {
                        return false;
                    }
                    // A refusal is a reply as well.
                    let ping = listening.connection.ping().await;
                    if ping.is_err_and(|error| is_lost(&error)) {
                        return true;
                    }
                }
            }
        }
    }

    /// The key of a record whose name was published.
    fn key(&self, message: &Published) -> Option<KeyDigest> {
        let name = std::str::from_utf8(&message.payload).ok()?;
        let rest = name.strip_prefix(&*self.prefix)?.strip_prefix(':')?;
        let (_operation, digest) = rest.rsplit_once(':')?;
        KeyDigest::from_str(digest).ok()
    }
}

/// Drop guard that notifies the listener of the end of its task.
struct HearingGuard(Weak<dyn Listener>);

impl Drop for HearingGuard {
    fn drop(&mut self) {
        if let Some(listener) = self.0.upgrade() {
            listener.hearing(Hearing::Nothing);
        }
    }
}
