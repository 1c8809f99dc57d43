//! The facts about one server.

use std::collections::BTreeMap;
use std::str::FromStr;

use redis::Value;

use crate::store::redis::server::Durability;
use crate::store::redis::wire::{text, text_pairs};

/// The oldest server whose scripts and commands suffice.
pub(super) const OLDEST: (u32, u32) = (6, 2);

/// Facts about a server when the store connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Server {
    /// Its replies to `HELLO`, `INFO` and `CONFIG GET`; of a name that two of them have, the first.
    pub(super) facts: BTreeMap<String, String>,
    pub(super) rights: Rights,
    pub(super) no_writes: Option<NoWrites>,
    pub(super) durability: Durability,
    /// The difference of its clock to that of this machine, in microseconds.
    pub(super) clock_ahead_us: Option<i64>,
}

impl Server {
    /// Major, minor and patch version; of Valkey its own.
    pub(super) fn version(&self) -> Option<(u32, u32, u32)> {
        // The `redis_version` of Valkey is that of a compatible Redis.
        let names = ["valkey_version", "version", "redis_version"];
        names
            .into_iter()
            .find_map(|name| parse_version(self.fact(name)?))
    }

    /// `master` or `replica`.
    pub(super) fn role(&self) -> Option<&str> {
        // `HELLO` reports `replica` where `INFO` still reports `slave`.
        self.fact("role")
            .map(|role| if role == "slave" { "replica" } else { role })
    }

    /// `standalone` or `cluster`.
    pub(super) fn mode(&self) -> Option<&str> {
        self.fact("mode").or_else(|| self.fact("redis_mode"))
    }

    /// The name that it reports: `redis`, `valkey`.
    pub(super) fn product(&self) -> Option<&str> {
        let valkey = || self.fact("valkey_version").map(|_| "valkey");
        let name = self.fact("server_name").or_else(valkey);
        name.or_else(|| self.fact("server"))
    }

    pub(super) fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    pub(super) fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.fact(name)?.parse().ok()
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.fact(name) == Some(value)
    }

    /// Adds the replies to `HELLO` and to `CONFIG GET`.
    pub(super) fn add_pairs(&mut self, reply: Value) {
        for (name, value) in text_pairs(reply) {
            self.facts.entry(name).or_insert(value);
        }
    }

    pub(super) fn add_info(&mut self, reply: &Value) {
        for line in text(reply).unwrap_or_default().lines() {
            // Kvrocks reports its own version so, beside the `redis_version` that it is compatible with.
            if let Some((name, value)) = line.trim_end().split_once(':')
                && name != "version"
            {
                let fact = self.facts.entry(name.to_owned());
                fact.or_insert_with(|| value.to_owned());
            }
        }
    }

    pub(super) fn is_loading(&self) -> bool {
        self.is("loading", "1")
    }

    pub(super) fn policy(&self) -> Option<&str> {
        self.fact("maxmemory_policy")
    }

    /// Whether there are rules for snapshots: seldom available.
    pub(super) fn snapshots(&self) -> Option<bool> {
        self.fact("save").map(|rules| !rules.is_empty())
    }

    /// Of a replica: whether its link to the primary is up.
    pub(super) fn follows(&self) -> Option<bool> {
        self.fact("master_link_status").map(|link| link == "up")
    }

    /// How many replicas a write needs: seldom available.
    pub(super) fn needed(&self) -> Option<u64> {
        self.number("min-replicas-to-write")
    }

    /// State and lag of each replica: `ip=…,port=…,state=online,offset=…,lag=0` of `slave0`, `slave1`, ….
    pub(super) fn each_replica(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        let is_replica = |name: &str| {
            let number = name.strip_prefix("slave").unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        };
        let each = self.facts.iter().filter(move |(name, _)| is_replica(name));
        each.map(|(_, replica)| {
            let part = |name| {
                let mut parts = replica.split(',').filter_map(|part| part.split_once('='));
                parts.find_map(|(part, value)| (part == name).then_some(value))
            };
            let lag = part("lag").and_then(|lag| lag.parse().ok());
            (part("state").unwrap_or("unknown"), lag)
        })
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
        self.version()
            .is_none_or(|(major, minor, _)| (major, minor) >= OLDEST)
    }

    /// Whether scripts may declare what they do (`#!lua flags=…`).
    pub(super) fn reads_declarations(&self) -> bool {
        self.version().is_some_and(|(major, ..)| major >= 7)
    }

    /// Whether the server has compare-and-set (`SET … IFEQ`): Valkey since 8.1, Redis since 8.4.
    pub(super) fn compares(&self) -> bool {
        let since = match self.product() {
            Some("valkey") => (8, 1, 0),
            Some("redis") => (8, 4, 0),
            _ => return false,
        };
        self.version().is_some_and(|version| version >= since)
    }

    /// Whether the store would send this command to save work.
    pub(super) fn saves(&self, right: &str) -> bool {
        let completes_by_script = self.reads_declarations()
            && self.durability == Durability::Acknowledged
            && !self.compares();
        // Completions of one script have keys in several slots.
        completes_by_script && !(right == "+mget" && self.is_cluster())
    }

    /// The command that notifies watchers: of the key's shard alone, if the cluster has shards,
    /// because otherwise it reaches every node.
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

    pub(super) fn evicts(&self) -> bool {
        let evicts = self.policy().is_some_and(|policy| policy != "noeviction");
        evicts && self.number("maxmemory") != Some(0_u64)
    }
}

pub(super) fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit());
        part[..digits.unwrap_or(part.len())].parse().ok()
    });
    Some((
        parts.next()??,
        parts.next()??,
        parts.next().flatten().unwrap_or(0),
    ))
}

/// Knowledge about the user's rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Rights {
    /// Not checked yet.
    #[default]
    Untried,
    /// The check failed, for this reason.
    Unknown(String),
    /// The check succeeded.
    Known(MissingRights),
}

/// Missing rights, in the notation of `ACL SETUSER`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MissingRights {
    /// The prefix that was checked.
    pub(super) prefix: String,
    /// Rights without which calls are refused.
    pub(super) needed: Vec<String>,
    /// Rights without which waiting calls poll.
    pub(super) notifying: Vec<String>,
    /// Rights without which completions cost the server more.
    pub(super) saving: Vec<String>,
}

/// Reason for which the server refuses writes at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoWrites {
    OutOfMemory,
    Disk,
    TooFewReplicas,
    ReadOnly,
    NoPrimary,
}

impl NoWrites {
    /// Parses an error, also one inside a script's (Redis 6).
    pub(super) fn parse(said: &str) -> Option<Self> {
        [
            ("OOM", Self::OutOfMemory),
            ("MISCONF", Self::Disk),
            ("NOREPLICAS", Self::TooFewReplicas),
            ("READONLY", Self::ReadOnly),
            ("MASTERDOWN", Self::NoPrimary),
            ("CLUSTERDOWN", Self::NoPrimary),
            // A script's text for it.
            ("cluster is down", Self::NoPrimary),
        ]
        .into_iter()
        .find_map(|(code, why)| said.contains(code).then_some(why))
    }
}
