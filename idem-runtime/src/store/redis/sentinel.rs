//! Discovery of the primary through sentinels.

mod election;
mod failover;
mod query;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use self::election::Election;
use self::failover::FailoverListeners;
use self::query::{Primary, query, unavailable};
use super::endpoint::Endpoint;
use super::limits::Limits;
use crate::store::StoreError;

/// Wait for the other sentinels after the first reply.
const OTHERS: Duration = Duration::from_millis(100);

/// The sentinels of one service. Clones share their state.
#[derive(Clone)]
pub(super) struct Sentinels(Arc<SentinelGroup>);

/// The state that the clones of [`Sentinels`] share.
struct SentinelGroup {
    sentinels: Vec<Endpoint>,
    /// Settings of a connection to a server; the address is filled in.
    server: Endpoint,
    election: Arc<Election>,
    listeners: Mutex<FailoverListeners>,
}

impl Sentinels {
    pub(super) fn new(sentinels: Vec<Endpoint>, service: String, server: Endpoint) -> Self {
        Self(Arc::new(SentinelGroup {
            sentinels,
            server,
            election: Arc::new(Election::new(service)),
            listeners: Mutex::default(),
        }))
    }

    pub(super) fn sentinels(&self) -> &[Endpoint] {
        &self.0.sentinels
    }

    pub(super) fn server(&self) -> &Endpoint {
        &self.0.server
    }

    /// Grows whenever another server has become the primary.
    pub(super) fn generation(&self) -> u64 {
        self.0.election.generation()
    }

    /// Queries all sentinels at once, and returns the primary of the latest failover.
    ///
    /// A sentinel that is cut off from the others does not know that it is late, and at first only the sentinel that
    /// leads a failover knows of it.
    pub(super) async fn primary(&self, limits: Limits) -> Result<Endpoint, StoreError> {
        self.listen(limits);
        let mut queries = JoinSet::new();
        for sentinel in &self.0.sentinels {
            queries.spawn(query(
                sentinel.clone(),
                self.0.election.service().to_owned(),
                limits,
            ));
        }
        let most = self.0.sentinels.len() / 2 + 1;
        let mut until = Instant::now() + limits.connect + limits.response;
        let (mut replies, mut best, mut failure) = (0, None::<Primary>, None);
        while let Ok(Some(reply)) = timeout_at(until, queries.join_next()).await {
            match reply {
                Ok(Ok(primary)) => {
                    replies += 1;
                    if replies == 1 {
                        until = until.min(Instant::now() + OTHERS);
                    }
                    if best.as_ref().is_none_or(|best| best.epoch < primary.epoch) {
                        best = Some(primary);
                    }
                }
                Ok(Err(error)) => {
                    // A refusal is more informative than silence.
                    if failure.as_ref().is_none_or(StoreError::is_transient) {
                        failure = Some(error);
                    }
                }
                Err(_) => {}
            }
        }
        match best {
            Some(primary) => {
                self.0.election.elect(&primary, replies >= most)?;
                self.0.server.at(&primary.address)
            }
            None => Err(failure.unwrap_or_else(|| unavailable("no sentinel answered in time"))),
        }
    }

    /// Starts the failover listeners, unless they run.
    ///
    /// Their runtime may have ended while another one drives the connection to the server.
    pub(super) fn listen(&self, limits: Limits) {
        let listeners = self.0.listeners.lock();
        let mut listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        listeners.start(&Arc::downgrade(&self.0.election), &self.0.sentinels, limits);
    }
}

debug_fields!(Sentinels {
    service: |it| it.0.election.service()
});
