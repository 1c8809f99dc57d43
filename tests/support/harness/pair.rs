//! A primary and one replica, without a failover.

use crate::replication::Replication;
use crate::{HANG_LIMIT, RedisServer, poll};

#[derive(Debug)]
pub struct ReplicaPair {
    /// The primary, started first.
    pub primary: RedisServer,
    pub replica: RedisServer,
}

impl ReplicaPair {
    /// Starts both, and waits until the replica is in sync.
    pub fn start() -> Self {
        let primary = RedisServer::builder()
            .arg("--repl-diskless-sync-delay", "0")
            .start();
        let port = primary.port().to_string();
        let replica = RedisServer::builder()
            .args(["--replicaof", "127.0.0.1", &port])
            .start();
        let pair = Self { primary, replica };
        pair.await_in_sync();
        pair
    }

    /// Waits until the replica is in sync.
    pub fn await_in_sync(&self) {
        poll::until("a replica in sync", || {
            Replication::of(&self.replica)?.primary_in_sync()
        });
        let limit = HANG_LIMIT.as_millis().to_string();
        let replicas = self.primary.cli(&["WAIT", "1", &limit]);
        assert_eq!(replicas, "1", "the replica does not confirm");
    }
}
