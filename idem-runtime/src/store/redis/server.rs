//! One server: a shared connection, and the connections that wait for its replicas.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::durability::{Durability, WriteConcern};
use super::failure::Failure;
use super::limits::Limits;
use super::link::{Link, ReplicaWait, RoutedCommand, Target};
use super::reply::wrote;
use crate::store::Admission;
use crate::store::pace::Crowded;
use crate::store::server_clock::ServerClock;

/// Settings of a server's connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionSettings {
    pub(super) limits: Limits,
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
                replicas: ReplicaWait::for_replicas(replicas, limits),
                free: Semaphore::new(settings.wait_connections),
                idle: Mutex::default(),
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

    /// The server's time in microseconds, where a claim without a script may use it.
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
        let waits = self.wait_pool.is_some() && concern == WriteConcern::Replicated;
        (!waits).then_some(&self.link)
    }

    /// Sends a command and waits for its reply, and for the replicas if it must.
    pub(super) async fn send(
        &self,
        command: &RoutedCommand<'_>,
        concern: WriteConcern,
    ) -> Result<Value, Failure> {
        match &self.wait_pool {
            // Boxed: larger, and cheap beside the wait for replicas.
            Some(pool) if concern == WriteConcern::Replicated => {
                Box::pin(self.send_and_wait(pool, command)).await
            }
            _ => self.link.send(command).await,
        }
    }

    /// Sends a command, then `WAIT`s for the replicas.
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

/// Connections for `WAIT`, which blocks its connection and covers the writes of that connection.
struct WaitPool {
    target: Target,
    limits: Limits,
    clock: Arc<ServerClock>,
    replicas: ReplicaWait,
    free: Semaphore,
    idle: Mutex<Vec<Link>>,
}

impl WaitPool {
    async fn send(
        &self,
        command: &RoutedCommand<'_>,
        _permit: Option<SemaphorePermit<'_>>,
    ) -> Result<Value, Failure> {
        let link = self.take();
        let replicas = Some(&self.replicas);
        let reply = link
            .send(&RoutedCommand {
                replicas,
                ..*command
            })
            .await;
        // Not reached if this future is dropped: the connection may still wait for replicas, and the next command must
        // not queue behind that.
        self.idle().push(link);
        reply
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Link {
        // Last in, first out, so that a few connections stay warm.
        let idle = self.idle().pop();
        idle.unwrap_or_else(|| Link::new(self.target.clone(), self.limits, Arc::clone(&self.clock)))
    }
}

debug_fields!(WaitPool { replicas });
