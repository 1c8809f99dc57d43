//! Parsing of `HELLO`, `INFO` and `CONFIG GET`.

use redis::Value;

use super::facts::Replica;
use super::server::Server;
use crate::store::redis::value::{text, text_pairs};

impl Server {
    pub(super) fn hello(&mut self, reply: Value) {
        for (name, value) in text_pairs(reply) {
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
            "server_time_usec" => self.time_us = value.parse().ok(),
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
        for (name, value) in text_pairs(reply) {
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
