//! Start-up check of the server: facts, refusals and warnings.

mod facts;
mod fleet;
mod report;
mod rights;
mod warnings;

#[cfg(test)]
mod tests;

use redis::{Cmd, Value};

use self::facts::{Memory, Persistence, Replication};
pub use self::fleet::Report;
use self::rights::{NoWrites, Rights};
use super::super::{StoreError, StoreErrorKind};
use super::link::Failure;
use super::node::{Durability, Node};

/// The oldest server whose scripts and commands suffice.
const OLDEST: (u32, u32) = (6, 2);

/// One node that can be queried.
pub(super) trait Ask: Sync {
    /// Sends a command and waits for its reply.
    fn ask(&self, command: &Cmd) -> impl Future<Output = Result<Value, Failure>> + Send;
}

impl Ask for Node {
    async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        self.ask(command).await
    }
}

/// What the store found out about a server when it connected.
///
/// Version, role, memory, persistence, replicas, and the rights of the user. As text it is a report
/// of some lines, for the start-up log and for an operator. It holds no
/// address, no user and no password:
///
/// ```text
/// Redis 7.0.15, standalone, primary
///   memory        12.3 MiB of 1.0 GiB, noeviction
///   persistence   append-only file (on disk before each reply), no snapshots
///   replicas      2: online (lag 0 s), online (lag 1 s); a failover can forget the last writes
///   rights        all that idem needs under `idem:`
///   warnings      none
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// The name that it reports: `redis`, `valkey`.
    product: Option<String>,
    version: Option<(u32, u32, u32)>,
    role: Option<String>,
    mode: Option<String>,
    /// The user has no right to query most of the rest.
    silent: bool,
    memory: Memory,
    persistence: Persistence,
    replication: Replication,
    rights: Rights,
    no_writes: Option<NoWrites>,
    durability: Durability,
}

/// Settings of the check.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// Where the user's rights are tried.
    pub(super) prefix: String,
    /// The durability required of the replicas.
    pub(super) durability: Durability,
}

impl Server {
    /// Queries a server for its facts and the user's rights.
    ///
    /// It sends `HELLO`, which every user may, `INFO`, which a restricted user may not, and a script
    /// that finds the user's rights under this prefix.
    pub(super) async fn ask(to: &impl Ask, look: &Look) -> Result<Self, StoreError> {
        let mut server = Self {
            durability: look.durability,
            ..Self::default()
        };
        match to.ask(&redis::cmd("HELLO")).await {
            Ok(reply) => server.hello(reply),
            // Without a connection, or the right to use it, nothing will work; without HELLO (a
            // proxy, an old server) only these facts are missing.
            Err(Failure::Connect(error)) => return Err(error),
            Err(failure) => {
                let hangs_up = failure.hangs_up();
                let error = failure.store_error("asking Redis for its version");
                if hangs_up {
                    return Err(error.with_hint("if this port speaks TLS, write `rediss://`"));
                }
                if error.kind() != StoreErrorKind::Protocol && !is_denied(&error) {
                    return Err(error);
                }
            }
        }
        match to.ask(&redis::cmd("INFO")).await {
            Ok(reply) => server.info(&reply),
            Err(failure) => {
                let error = failure.store_error("asking Redis about itself");
                // Silence is no refusal: the server may evict, and might have reported so.
                if error.is_transient() {
                    return Err(error);
                }
                server.silent = is_denied(&error);
            }
        }
        // A server that will be refused is not queried further.
        if !server.is_sentinel() && server.is_new_enough() {
            server.try_rights(to, &look.prefix).await?;
        }
        Ok(server)
    }

    /// The facts in a server's reply to `HELLO`.
    pub(super) fn said(hello: Value) -> Self {
        let mut server = Self::default();
        server.hello(hello);
        server
    }

    /// Major, minor, patch; of Valkey its own.
    #[must_use]
    pub fn version(&self) -> Option<(u32, u32, u32)> {
        self.version
    }

    /// `master` or `replica`.
    #[must_use]
    pub fn role(&self) -> Option<&str> {
        self.role.as_deref()
    }

    /// `standalone` or `cluster`.
    #[must_use]
    pub fn mode(&self) -> Option<&str> {
        self.mode.as_deref()
    }

    pub(super) fn is_replica(&self) -> bool {
        self.role() == Some("replica")
    }

    fn is_sentinel(&self) -> bool {
        self.mode() == Some("sentinel")
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.mode() == Some("cluster")
    }

    fn is_new_enough(&self) -> bool {
        self.version
            .is_none_or(|(major, minor, _)| (major, minor) >= OLDEST)
    }

    /// Whether scripts may declare what they do (`#!lua flags=…`).
    pub(super) fn reads_declarations(&self) -> bool {
        self.version.is_some_and(|(major, ..)| major >= 7)
    }

    /// Whether the server has compare-and-set (`SET … IFEQ`): Valkey since 8.1, Redis since 8.4.
    pub(super) fn compares(&self) -> bool {
        let since = match self.product.as_deref() {
            Some("valkey") => (8, 1, 0),
            Some("redis") => (8, 4, 0),
            _ => return false,
        };
        self.version.is_some_and(|version| version >= since)
    }

    /// The command that notifies watchers: in a cluster the one that stays in the key's shard,
    /// where there is one, since the other one reaches every node.
    pub(super) fn publish(&self) -> &'static str {
        self.telling()[0]
    }

    /// The commands that publish and subscribe.
    fn telling(&self) -> [&'static str; 3] {
        if self.is_cluster() && self.reads_declarations() {
            ["SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"]
        } else {
            ["PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"]
        }
    }

    /// Refuses a server on which the guarantee cannot hold.
    pub(super) fn refuse(&self, allow_eviction: bool) -> Result<(), StoreError> {
        let refused = |message: String| Err(StoreError::new(StoreErrorKind::Refused, message));
        if self.is_sentinel() {
            return refused(
                "this is a Redis Sentinel, which keeps no records; connect to the Redis that it \
                 watches"
                    .to_owned(),
            );
        }
        if !self.is_new_enough() {
            return refused(format!(
                "{} is too old; {}.{} or newer is needed",
                self.name(),
                OLDEST.0,
                OLDEST.1
            ));
        }
        match &self.memory.policy {
            Some(policy) if self.evicts() && !allow_eviction => refused(format!(
                "Redis evicts keys when its memory is full (`maxmemory-policy {policy}`), and an \
                 evicted record lets its body run again; set `maxmemory-policy noeviction`, or \
                 accept it by `allow_eviction`"
            )),
            _ => Ok(()),
        }
    }

    fn evicts(&self) -> bool {
        self.memory
            .policy
            .as_ref()
            .is_some_and(|policy| policy != "noeviction")
            && self.memory.limit != Some(0)
    }
}

fn is_denied(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Refused && error.to_string().ends_with("[NOPERM]")
}
