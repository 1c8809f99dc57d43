//! One server: a shared connection, the connections that wait for its replicas, and the durability of its writes.

use std::sync::Arc;

use redis::{Cmd, Value};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::failure::Failure;
use super::link::{Link, RoutedCommand, Target, wrote};
use super::wire::{ConnectionLimits, Words};
use crate::env::lock::Lock;
use crate::store::Admission;
use crate::store::pace::Crowded;
use crate::store::server_clock::ServerClock;

/// When a write counts as stored.
///
/// # Guarantees of Redis in a failover
///
/// A primary sends a write to its replicas after it has replied. A promoted replica may lack that write, and a
/// primary that is cut off goes on granting claims until it learns of its successor: all of these writes
/// are forgotten, and bodies run again.
///
/// With `Acknowledged` most bodies that run meanwhile may run again, with `Replicated(1)` those on a primary that is parted
/// together with one replica, and with `Replicated(2)` of two replicas none: `docs/performance.md` in the repository has
/// the measurements. A client that knows the sentinels (`redis+sentinel://…`) leaves the former primary when they name
/// another one. `SENTINEL FAILOVER` by an operator is no better, because the old primary goes on meanwhile; `CLUSTER
/// FAILOVER` stops it first.
///
/// Where too few replicas are left, `Replicated` grants nothing: calls at the former primary are
/// refused, and work again once the client reaches the new one.
///
/// # Limits of replication
///
/// - **No consensus.** A write survives if the promoted replica has it. Sentinels promote the replica
///   that is furthest among the replicas that they see, whichever replicas confirmed the write; an operator, or
///   `replica-priority`, may choose another. As measured, a replica that is lost together
///   with the primary confirms as well; so does one without a link to the new primary. Require most
///   of the replicas at least; only all of them is safe whichever is promoted, and then nothing is
///   granted while one is missing, as after each failover until the former primary is back.
/// - **No wait for the answer.** The caller receives it in any case, and so do callers at the former
///   primary. Where the claim is on the new primary and the answer is not, the key counts as running
///   until its lease ends, and may then run again as after a crash. A client that knows the sentinels
///   stores its answers there as soon as it can, so give it these.
/// - **Not only your replicas.** Every acknowledgement of replication is counted, a backup tool's too; and
///   behind a proxy that shares its connections among clients, `WAIT` proves nothing.
/// - **Not free.** Claims, renewals and answers take one more round trip and the time in which the replicas
///   confirm them, on one of eight connections; with too few replicas they keep one for half of
///   `response_timeout` each. Leases that cannot be renewed in this way are lost.
///
/// [`WAIT`](https://redis.io/docs/latest/commands/wait/) covers the writes of its own connection: from
/// Redis 7.2 on up to its last write, before that up to its last command. So a claim or an answer that
/// is sent again writes again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the server has it. A failover can forget a write that has not reached its replicas yet: a claim,
    /// so that its body runs again, or an answer.
    #[default]
    Acknowledged,
    /// When so many replicas have it as well: claims, renewals and answers are each followed by
    /// `WAIT`. With too few replicas nothing is granted, and the claim is released; finished
    /// answers are still replayed.
    ///
    /// Replays wait for no replica. While replicas are away, they may give an answer that is not on them
    /// yet: if a failover follows, and the owner that ran the body can no longer store it there, the body
    /// runs again, a lease later.
    Replicated(u32),
}

/// Whether the durability of the store applies to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteConcern {
    /// No: a failover may forget its write, if it writes.
    Local,
    /// Yes: its write must survive a failover.
    Replicated,
}

/// Settings of a server's connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionSettings {
    pub(super) limits: ConnectionLimits,
    pub(super) durability: Durability,
    /// Largest number of writes that wait for replicas at once.
    pub(super) wait_connections: usize,
}

/// A server and its connections.
#[derive(Debug)]
pub(crate) struct RedisServer {
    link: Link,
    wait_pool: Option<WaitPool>,
}

impl RedisServer {
    /// `clock`: the estimate of the server's clock, shared by its connections.
    pub(super) fn new(
        target: &Target,
        settings: ConnectionSettings,
        clock: Arc<ServerClock>,
    ) -> Self {
        let ConnectionSettings { limits, .. } = settings;
        let wait_pool = match settings.durability {
            Durability::Acknowledged | Durability::Replicated(0) => None,
            Durability::Replicated(replicas) => Some(WaitPool {
                target: target.clone(),
                limits,
                clock: Arc::clone(&clock),
                wanted: replicas,
                wait: wait_for(replicas, limits),
                free: Semaphore::new(settings.wait_connections),
                idle: Lock::default(),
            }),
        };
        Self {
            link: Link::new(target.clone(), limits, clock),
            wait_pool,
        }
    }

    /// Sends a command without a key.
    pub(super) async fn query(&self, command: &Cmd) -> Result<Value, Failure> {
        self.link
            .send(&RoutedCommand::new(&|words| words.copy(command)))
            .await
    }

    /// The server's time in microseconds, where a plain claim may use it.
    ///
    /// Not with replication, where writes are made by scripts because these can be sent again.
    pub(super) fn server_time(&self) -> Option<u64> {
        match self.wait_pool {
            None => self.link.server_time(),
            Some(_) => None,
        }
    }

    /// Queue of a claim that cannot be sent in time.
    pub(super) fn crowded(&self, admission: &Admission) -> Option<Crowded> {
        self.link.crowded(admission)
    }

    /// The connection of a command that waits for no replica.
    pub(super) fn direct(&self, concern: WriteConcern) -> Option<&Link> {
        (self.waiting(concern).is_none()).then_some(&self.link)
    }

    /// Sends a command, and waits for its reply and the required replicas.
    pub(super) async fn send(
        &self,
        command: &RoutedCommand<'_>,
        concern: WriteConcern,
    ) -> Result<Value, Failure> {
        match self.waiting(concern) {
            // Boxed: larger, and cheap beside the wait for replicas.
            Some(pool) => Box::pin(self.send_and_wait(pool, command)).await,
            None => self.link.send(command).await,
        }
    }

    /// The connections on which a command waits for replicas, if it does.
    fn waiting(&self, concern: WriteConcern) -> Option<&WaitPool> {
        let pool = self.wait_pool.as_ref();
        pool.filter(|_| concern == WriteConcern::Replicated)
    }

    async fn send_and_wait(
        &self,
        pool: &WaitPool,
        command: &RoutedCommand<'_>,
    ) -> Result<Value, Failure> {
        if let Ok(permit) = pool.free.try_acquire() {
            return pool.send(command, Some(permit)).await;
        }
        // All connections wait for replicas, which may be absent. The command is sent on the shared connection first,
        // so that an answer is still replayed and a lease still renewed.
        let written = self.link.send(command).await?;
        if !wrote(&written) {
            return Ok(written);
        }
        // The semaphore is never closed.
        let permit = pool.free.acquire().await.ok();
        // The write is sent again on the connection that waits; it is idempotent.
        let reply = pool.send(command, permit).await?;
        Ok(if wrote(&reply) { written } else { reply })
    }
}

/// Connections for `WAIT`, which blocks and covers its own connection.
struct WaitPool {
    target: Target,
    limits: ConnectionLimits,
    clock: Arc<ServerClock>,
    /// The number of replicas that must have a write before it counts.
    wanted: u32,
    wait: Cmd,
    free: Semaphore,
    idle: Lock<Vec<Link>>,
}

impl WaitPool {
    async fn send(
        &self,
        command: &RoutedCommand<'_>,
        _permit: Option<SemaphorePermit<'_>>,
    ) -> Result<Value, Failure> {
        // Last in, first out, so that a few connections stay warm.
        let link = self.idle.lock().pop();
        let new = || Link::new(self.target.clone(), self.limits, Arc::clone(&self.clock));
        let link = link.unwrap_or_else(new);
        let reply = self.send_on(&link, command).await;
        // Not reached if this future is dropped: the connection may still wait for replicas, and the next command must
        // not queue behind that.
        self.idle.lock().push(link);
        reply
    }

    /// Sends a command, and waits until enough replicas have its write.
    async fn send_on(&self, link: &Link, command: &RoutedCommand<'_>) -> Result<Value, Failure> {
        let ready = link.connected().await?;
        let reply = ready.clone().send(command).await?;
        if !wrote(&reply) {
            return Ok(reply);
        }
        // On this connection, because `WAIT` covers only the writes of its own.
        let wait = |words: &mut Words<'_>| words.copy(&self.wait);
        let wanted = self.wanted;
        match ready.send(&RoutedCommand::new(&wait)).await? {
            Value::Int(replicas) if replicas >= wanted.into() => Ok(reply),
            replicas => {
                let replicas = match replicas {
                    Value::Int(replicas) => u32::try_from(replicas).unwrap_or_default(),
                    _ => 0,
                };
                Err(Failure::Unreplicated { replicas, wanted })
            }
        }
    }
}

/// The `WAIT` for replicas. Half of the reply's time limit leaves time for their number.
fn wait_for(replicas: u32, limits: ConnectionLimits) -> Cmd {
    let millis = (limits.response / 2).as_millis().max(1);
    let mut command = redis::cmd("WAIT");
    command.arg(replicas).arg(millis.to_string());
    command
}

debug_fields!(WaitPool { wanted });
