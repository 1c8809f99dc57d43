//! Facts as text.

use super::server::Server;
use crate::store::redis::durability::Durability;

/// Replicas that are listed one by one.
const EACH: usize = 4;

impl Server {
    /// Product and version.
    pub(super) fn name(&self) -> String {
        let product = match self.product() {
            Some("redis") | None => "Redis",
            Some("valkey") => "Valkey",
            Some(other) => other,
        };
        match self.version() {
            Some((major, minor, patch)) => format!("{product} {major}.{minor}.{patch}"),
            None => format!("{product} of unknown version"),
        }
    }

    pub(super) fn persistence_line(&self) -> String {
        let mut line = match self.fact("aof_enabled") {
            None => return UNKNOWN.to_owned(),
            Some("1") => {
                let costs = match self.fact("appendfsync") {
                    Some("always") => "on disk before each reply",
                    Some("everysec") => "to disk once a second; a power loss can cost the last one",
                    Some("no") => "to disk when the system does; a power loss can cost more",
                    _ => "how soon on disk is not told",
                };
                let failed = if self.is("aof_last_write_status", "err") {
                    "; the last write failed"
                } else {
                    ""
                };
                format!("append-only file ({costs}{failed})")
            }
            Some(_) => "no append-only file".to_owned(),
        };
        line.push_str(match self.snapshots() {
            Some(true) => ", snapshots",
            Some(false) => ", no snapshots",
            None => ", whether snapshots is not told",
        });
        if self.is("rdb_last_bgsave_status", "err") {
            line.push_str(" (the last failed)");
        }
        if self.is_loading() {
            line.push_str("; loading");
        }
        line
    }

    pub(super) fn replicas_line(&self) -> String {
        if self.is_replica() {
            return match self.follows() {
                Some(true) => "this is one; its link to the primary is up".to_owned(),
                Some(false) => "this is one; its link to the primary is down".to_owned(),
                None => "this is one".to_owned(),
            };
        }
        let replicas: Option<usize> = self.number("connected_slaves");
        let mut line = match replicas {
            None => return UNKNOWN.to_owned(),
            Some(0) => "none".to_owned(),
            Some(count) => {
                let mut each: Vec<_> = self.each_replica().take(EACH).map(describe).collect();
                if count > each.len() {
                    each.push(format!("{} more", count - each.len()));
                }
                format!("{count}: {}", each.join(", "))
            }
        };
        if let Some(needed) = self.needed().filter(|needed| *needed > 0) {
            line.push_str("; a write needs ");
            line.push_str(&needed.to_string());
        }
        match self.durability {
            Durability::Replicated(1) => line.push_str("; each write waits for 1"),
            Durability::Replicated(count) => {
                line.push_str("; each write waits for ");
                line.push_str(&count.to_string());
            }
            Durability::Acknowledged if replicas == Some(0) => {}
            Durability::Acknowledged => line.push_str("; a failover can forget the last writes"),
        }
        line
    }
}

const UNKNOWN: &str = "unknown";

fn describe((state, lag): (&str, Option<u64>)) -> String {
    match lag {
        Some(lag) if state == "online" => format!("online (lag {lag} s)"),
        _ => state.to_owned(),
    }
}

/// A size in the unit that suits it, with one decimal: `12.3 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    let mut unit = "B";
    let (mut whole, mut tenths) = (bytes, 0);
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if whole < 1024 {
            break;
        }
        unit = next;
        tenths = whole % 1024 * 10 / 1024;
        whole /= 1024;
    }
    if unit == "B" {
        format!("{whole} B")
    } else {
        format!("{whole}.{tenths} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_have_a_suitable_unit() {
        for (size, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (12_897_485, "12.2 MiB"),
            (1 << 30, "1.0 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
    }
}
