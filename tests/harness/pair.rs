//! A primary and one replica, and nobody who would promote it.

use crate::replication::Replication;
use crate::{RedisServer, poll};

/// A primary with a replica that follows it.
#[derive(Debug)]
pub struct ReplicaPair {
    /// It was started first.
    pub primary: RedisServer,
    /// It copies the primary.
    pub replica: RedisServer,
}

impl ReplicaPair {
    /// Starts both, and waits until the replica has all that the primary has.
    #[must_use]
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

    /// Waits until the replica has all that the primary has.
    pub fn await_in_sync(&self) {
        poll::until("a replica in sync", || {
            Replication::of(&self.replica)?.primary_in_sync()
        });
        let replicas = self.primary.cli(&["WAIT", "1", "20000"]);
        assert_eq!(replicas, "1", "the replica does not confirm within 20 s");
    }
}
