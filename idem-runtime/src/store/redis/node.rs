//! One server: the connection that everything goes through, and those that wait for its replicas.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::link::{Failure, Kept, Link, Order, Patience, Target};
use super::script::wrote;

/// When a write counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the server has it. A failover can forget what has not reached its replicas yet: a claim,
    /// so that its body runs again, or an answer.
    #[default]
    Acknowledged,
    /// When so many replicas have it as well: claims, renewals and answers are each followed by
    /// `WAIT` (<https://redis.io/docs/latest/commands/wait/>). With too few replicas nothing is
    /// granted, and what was claimed is given back.
    ///
    /// A failover keeps what is on the replica that it promotes. With as many as there are replicas
    /// that is everything; with fewer, one that lacks the last writes may be promoted while those
    /// that have them are cut off. A write takes one more round trip, and the time in which the
    /// replicas confirm it.
    ///
    /// Replays wait for nobody. While replicas are away, they may give an answer that is not on them
    /// yet: if a failover follows, and whoever ran the body can no longer store it there, the body
    /// runs again, a lease later.
    Replicated(u32),
}

/// What a command writes, seen from its loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// Nothing that a failover may not forget.
    Nothing,
    /// What is to survive a failover, and need not happen before that can be waited for.
    Asked,
    /// What is to survive a failover, and comes in any case: a renewal, an answer. While others wait
    /// for replicas that are away, a lease must not lapse for want of a connection that can wait.
    Given,
}

/// How connections are made and used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) patience: Patience,
    pub(super) durability: Durability,
    /// How many writes may wait for replicas at once.
    pub(super) lanes: usize,
}

/// A server.
#[derive(Debug)]
pub(super) struct Node {
    link: Link,
    lanes: Option<Lanes>,
}

impl Node {
    pub(super) fn new(target: &Target, plan: Plan) -> Self {
        let Plan { patience, .. } = plan;
        let lanes = match plan.durability {
            Durability::Acknowledged | Durability::Replicated(0) => None,
            Durability::Replicated(replicas) => Some(Lanes {
                target: target.clone(),
                patience,
                kept: Kept::by(replicas, patience),
                free: Semaphore::new(plan.lanes),
                idle: Mutex::default(),
            }),
        };
        Self {
            link: Link::new(target.clone(), patience),
            lanes,
        }
    }

    /// Sends a command that is about no key.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        self.link.send(Order::new(command)).await
    }

    /// Sends a command.
    pub(super) async fn send(&self, order: Order<'_>, keeping: Keeping) -> Result<Value, Failure> {
        let Some(lanes) = self.lanes.as_ref().filter(|_| keeping != Keeping::Nothing) else {
            return self.link.send(order).await;
        };
        if let Ok(permit) = lanes.free.try_acquire() {
            return lanes.send(order, Some(permit)).await;
        }
        let mut written = None;
        if keeping == Keeping::Given {
            let reply = self.link.send(order).await?;
            if !wrote(&reply) {
                return Ok(reply);
            }
            written = Some(reply);
        }
        // Nobody closes it.
        let permit = lanes.free.acquire().await.ok();
        // Sent again where that was written already, which changes nothing twice.
        let reply = lanes.send(order, permit).await?;
        Ok(written.filter(|_| wrote(&reply)).unwrap_or(reply))
    }
}

/// Connections that wait: `WAIT` blocks its connection, and counts what that connection wrote.
struct Lanes {
    target: Target,
    patience: Patience,
    kept: Kept,
    free: Semaphore,
    idle: Mutex<Vec<Link>>,
}

impl Lanes {
    async fn send(
        &self,
        order: Order<'_>,
        _permit: Option<SemaphorePermit<'_>>,
    ) -> Result<Value, Failure> {
        let link = self.take();
        let kept = Some(&self.kept);
        let reply = link.send(Order { kept, ..order }).await;
        // One whose sender gives up may go on waiting for replicas. It is not put back, so that the
        // next one does not queue behind that.
        self.idle().push(link);
        reply
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Link {
        // Last in, first out: a few warm connections rather than many that fall asleep.
        let idle = self.idle().pop();
        idle.unwrap_or_else(|| Link::new(self.target.clone(), self.patience))
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
