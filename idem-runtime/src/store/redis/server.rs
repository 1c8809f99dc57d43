//! One server: a shared connection, and the connections that wait for its replicas.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::durability::{Durability, Keeping};
use super::failure::Failure;
use super::link::{Kept, Link, Order, Target};
use super::reply::wrote;
use super::timeouts::Patience;
use crate::store::Admission;
use crate::store::pace::Crowded;
use crate::store::server_clock::ServerClock;

/// Settings of a node's connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) patience: Patience,
    pub(super) durability: Durability,
    /// Largest number of writes that wait for replicas at once.
    pub(super) lanes: usize,
}

/// A server and its connections.
#[derive(Debug)]
pub(crate) struct Node {
    link: Link,
    lanes: Option<Lanes>,
}

impl Node {
    /// `clock` is the server's.
    pub(super) fn new(target: &Target, plan: Plan, clock: Arc<ServerClock>) -> Self {
        let Plan { patience, .. } = plan;
        let lanes = match plan.durability {
            Durability::Acknowledged | Durability::Replicated(0) => None,
            Durability::Replicated(replicas) => Some(Lanes {
                target: target.clone(),
                patience,
                clock: Arc::clone(&clock),
                kept: Kept::by(replicas, patience),
                free: Semaphore::new(plan.lanes),
                idle: Mutex::default(),
            }),
        };
        Self {
            link: Link::new(target.clone(), patience, clock),
            lanes,
        }
    }

    /// Sends a command without a key.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        self.link.send(&Order::new(&|| command.clone())).await
    }

    /// The server's time in microseconds, where a plain claim may use it. Not with replication, where
    /// writes are made by scripts, which can be sent again.
    pub(super) fn server_time(&self) -> Option<u64> {
        match self.lanes {
            None => self.link.server_time(),
            Some(_) => None,
        }
    }

    /// Why a claim cannot be sent in time, if so.
    pub(super) fn crowded(&self, admission: &Admission) -> Option<Crowded> {
        self.link.crowded(admission)
    }

    pub(super) async fn send(&self, order: &Order<'_>, keeping: Keeping) -> Result<Value, Failure> {
        match &self.lanes {
            // Boxed: it is larger, and the wait for replicas costs more.
            Some(lanes) if keeping == Keeping::Writes => {
                Box::pin(self.send_and_wait(lanes, order)).await
            }
            _ => self.link.send(order).await,
        }
    }

    /// Sends a command, then `WAIT`s for the replicas.
    async fn send_and_wait(&self, lanes: &Lanes, order: &Order<'_>) -> Result<Value, Failure> {
        if let Ok(permit) = lanes.free.try_acquire() {
            return lanes.send(order, Some(permit)).await;
        }
        // While other commands wait for absent replicas, an answer is still replayed and a lease still
        // renewed: the command is sent now, and its write waits for the replicas later.
        let written = self.link.send(order).await?;
        if !wrote(&written) {
            return Ok(written);
        }
        // The semaphore is never closed.
        let permit = lanes.free.acquire().await.ok();
        // Send again the command that already wrote; it is idempotent.
        let reply = lanes.send(order, permit).await?;
        Ok(if wrote(&reply) { written } else { reply })
    }
}

/// Connections for `WAIT`, which blocks its connection and counts that connection's writes.
struct Lanes {
    target: Target,
    patience: Patience,
    clock: Arc<ServerClock>,
    kept: Kept,
    free: Semaphore,
    idle: Mutex<Vec<Link>>,
}

impl Lanes {
    async fn send(
        &self,
        order: &Order<'_>,
        _permit: Option<SemaphorePermit<'_>>,
    ) -> Result<Value, Failure> {
        let link = self.take();
        let kept = Some(&self.kept);
        let reply = link.send(&Order { kept, ..*order }).await;
        // A connection whose future is dropped may still be waiting for replicas. It is not put back, so that
        // the next command does not queue behind it.
        self.idle().push(link);
        reply
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Link {
        // Last in, first out: a few warm connections rather than many idle ones.
        let idle = self.idle().pop();
        idle.unwrap_or_else(|| {
            Link::new(self.target.clone(), self.patience, Arc::clone(&self.clock))
        })
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes")
            .field("kept", &self.kept)
            .field("idle", &self.idle().len())
            .finish_non_exhaustive()
    }
}
