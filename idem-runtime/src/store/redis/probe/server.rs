//! The findings about one server, and the refusal of one that cannot hold the guarantee.

use super::acl::{NoWrites, Rights};
use super::facts::{Memory, Persistence, Replication};
use crate::store::redis::durability::Durability;
use crate::store::{StoreError, StoreErrorKind};

/// The oldest server whose scripts and commands suffice.
pub(super) const OLDEST: (u32, u32) = (6, 2);

/// Facts about a server when the store connected.
///
/// Version, role, memory, persistence, replicas, and the rights of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// The name that it reports: `redis`, `valkey`.
    pub(super) product: Option<String>,
    pub(super) version: Option<(u32, u32, u32)>,
    pub(super) role: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) memory: Memory,
    pub(super) persistence: Persistence,
    pub(super) replication: Replication,
    pub(super) rights: Rights,
    pub(super) no_writes: Option<NoWrites>,
    pub(super) durability: Durability,
    /// The time that it reported, in microseconds since 1970.
    pub(super) time_us: Option<i64>,
    /// The difference of its clock to that of this machine, in microseconds.
    pub(super) clock_ahead_us: Option<i64>,
}

impl Server {
    /// Major, minor and patch version; of Valkey its own.
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

    pub(super) fn is_sentinel(&self) -> bool {
        self.mode() == Some("sentinel")
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.mode() == Some("cluster")
    }

    pub(super) fn is_new_enough(&self) -> bool {
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

    /// Whether the store would send this command, in the notation of `ACL SETUSER`, to save the server work.
    pub(super) fn saves(&self, right: &str) -> bool {
        let completes_by_script = self.reads_declarations()
            && self.durability == Durability::Acknowledged
            && !self.compares();
        // Completions of one script have keys in several slots.
        completes_by_script && !(right == "+mget" && self.is_cluster())
    }

    /// The command that notifies watchers: in a cluster the one that stays in the key's shard,
    /// where there is one, since the other one reaches every node.
    pub(super) fn publish(&self) -> &'static str {
        self.pubsub_commands()[0]
    }

    /// The commands that publish and subscribe.
    pub(super) fn pubsub_commands(&self) -> [&'static str; 3] {
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
                 watches, by `redis+sentinel://host,host/service`"
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

    pub(super) fn evicts(&self) -> bool {
        self.memory
            .policy
            .as_ref()
            .is_some_and(|policy| policy != "noeviction")
            && self.memory.limit != Some(0)
    }
}
