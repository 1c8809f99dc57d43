//! Parsing of `HELLO`, `INFO` and `CONFIG GET`.

use redis::Value;

use super::Server;

/// Memory use in bytes, and the eviction policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) used: Option<u64>,
    /// 0 for none.
    pub(super) limit: Option<u64>,
    pub(super) policy: Option<String>,
}

/// What survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Persistence {
    pub(super) loading: bool,
    pub(super) append_only: Option<bool>,
    /// `always`, `everysec` or `no`: seldom available.
    pub(super) fsync: Option<String>,
    pub(super) append_failed: bool,
    /// Whether there are rules for snapshots: seldom available.
    pub(super) snapshots: Option<bool>,
    pub(super) snapshot_failed: bool,
}

/// Replication state of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replication {
    pub(super) replicas: Option<usize>,
    pub(super) each: Vec<Replica>,
    /// How many of them are close enough, where the server counts them.
    pub(super) good: Option<u64>,
    /// How many of them a write needs: seldom available.
    pub(super) needed: Option<u64>,
    /// Of a replica: whether its link to the primary is up.
    pub(super) follows: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) state: String,
    pub(super) lag: Option<u64>,
}

impl Server {
    pub(super) fn hello(&mut self, reply: Value) {
        for (name, value) in pairs(reply) {
            match (name.as_str(), value) {
                ("server", name) => self.product = Some(name),
                ("version", version) => self.version = parse_version(&version),
                ("role", role) => self.role = Some(role),
                ("mode", mode) => self.mode = Some(mode),
                _ => {}
            }
        }
    }

    pub(super) fn info(&mut self, reply: &Value) {
        for line in text(reply).unwrap_or_default().lines() {
            if let Some((name, value)) = line.trim_end().split_once(':') {
                self.fact(name, value);
            }
        }
    }

    fn fact(&mut self, name: &str, value: &str) {
        let number = || value.parse().ok();
        let failed = value == "err";
        match name {
            "redis_version" if self.version.is_none() => self.version = parse_version(value),
            // `redis_version` is then the one that it is compatible with.
            "valkey_version" => {
                self.product = Some("valkey".to_owned());
                self.version = parse_version(value);
            }
            "server_name" => self.product = Some(value.to_owned()),
            "redis_mode" if self.mode.is_none() => self.mode = Some(value.to_owned()),
            "role" if self.role.is_none() => {
                // HELLO reports `replica` where INFO still reports `slave`.
                let role = if value == "slave" { "replica" } else { value };
                self.role = Some(role.to_owned());
            }
            "used_memory" => self.memory.used = number(),
            "maxmemory" => self.memory.limit = number(),
            "maxmemory_policy" => self.memory.policy = Some(value.to_owned()),
            "loading" => self.persistence.loading = value == "1",
            "aof_enabled" => self.persistence.append_only = Some(value == "1"),
            "aof_last_write_status" => self.persistence.append_failed = failed,
            "rdb_last_bgsave_status" => self.persistence.snapshot_failed = failed,
            "connected_slaves" => self.replication.replicas = value.parse().ok(),
            "min_slaves_good_slaves" => self.replication.good = number(),
            "master_link_status" => self.replication.follows = Some(value == "up"),
            name if is_replica(name) => self.replication.each.push(Replica::parse(value)),
            _ => {}
        }
    }

    pub(super) fn settings(&mut self, reply: Value) {
        for (name, value) in pairs(reply) {
            match name.as_str() {
                "save" => self.persistence.snapshots = Some(!value.is_empty()),
                "appendfsync" => self.persistence.fsync = Some(value),
                "min-replicas-to-write" => self.replication.needed = value.parse().ok(),
                _ => {}
            }
        }
    }
}

/// `slave0`, `slave1`, …; not `slave_repl_offset`.
fn is_replica(name: &str) -> bool {
    name.strip_prefix("slave").is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

impl Replica {
    /// Reads `ip=…,port=…,state=online,offset=…,lag=0`.
    fn parse(value: &str) -> Self {
        let mut replica = Self {
            state: "unknown".to_owned(),
            lag: None,
        };
        for part in value.split(',') {
            match part.split_once('=') {
                Some(("state", state)) => state.clone_into(&mut replica.state),
                Some(("lag", lag)) => replica.lag = lag.parse().ok(),
                _ => {}
            }
        }
        replica
    }
}

/// The texts of a map: in RESP2, a list of names and values.
fn pairs(reply: Value) -> Vec<(String, String)> {
    let pairs: Vec<_> = match reply {
        Value::Map(pairs) => pairs,
        Value::Array(parts) => {
            let mut parts = parts.into_iter();
            std::iter::from_fn(|| Some((parts.next()?, parts.next()?))).collect()
        }
        _ => Vec::new(),
    };
    let texts = |(name, value): (Value, Value)| Some((text(&name)?, text(&value)?));
    pairs.into_iter().filter_map(texts).collect()
}

pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
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
