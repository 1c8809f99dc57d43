//! Each fact about a server as text, with its level, its consequence and the remedy.

use super::server::{NoWrites, OLDEST, Rights, Server};
use crate::store::Finding;
use crate::store::redis::server::Durability;

/// Replicas that are listed one by one.
const EACH: usize = 4;
const UNKNOWN: &str = "unknown";

/// The consequence of Redis's default `appendfsync`, which a report has and no start-up log repeats.
pub(super) const FORGETS_A_SECOND: &str =
    "a crash of the machine forgets up to a second: those bodies run again";

/// What the engine uses a Redis for, on which the consequence of a fact depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It keeps the records.
    Store,
    /// It keeps copies of records that another store keeps: lost ones cost time only.
    Cache,
}

impl Use {
    const fn without_writes(self) -> &'static str {
        match self {
            Self::Store => "claims are refused",
            Self::Cache => "no answer is copied to it",
        }
    }

    const fn without_replies(self) -> &'static str {
        match self {
            Self::Store => "calls are refused",
            Self::Cache => "no answer is copied to it or replayed from it",
        }
    }
}

impl Server {
    /// The findings about this server.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.findings_as(Use::Store)
    }

    pub(super) fn findings_as(&self, used: Use) -> Vec<Finding> {
        let mut findings = vec![self.version_finding(), self.role_finding(used)];
        if self.is_loading() {
            findings.push(
                Finding::fail("state", "loading its data")
                    .means(format!("{} until it has loaded", used.without_replies()))
                    .remedy("wait; look at its log if it takes long"),
            );
        }
        findings.extend(self.writes_finding(used));
        findings.extend(self.memory_finding(used));
        match (used, self.policy()) {
            (Use::Cache, _) => findings.extend(self.disk_finding(used)),
            (Use::Store, Some(policy)) => findings.extend([
                self.eviction_finding(policy),
                self.persistence_finding(),
                self.replicas_finding(),
                Finding::of_clock(self.clock_ahead_us),
            ]),
            (Use::Store, None) => findings.push(
                Finding::warn("settings", "not shown to this user (INFO is not allowed)")
                    .means("a record that is evicted, or forgotten by a restart, lets its body run again")
                    .remedy(
                        "make sure that `maxmemory-policy` is `noeviction` and `appendonly` is `yes`, \
                         or grant `+info`",
                    ),
            ),
        }
        findings.extend(self.rights_findings(used));
        findings
    }

    fn version_finding(&self) -> Finding {
        let (major, minor) = OLDEST;
        let fact = format!("{}, {}", self.name(), self.mode().unwrap_or("mode unknown"));
        if self.version().is_none() {
            return Finding::warn("version", fact)
                .remedy(format!("make sure that it is {major}.{minor} or newer"));
        }
        if self.is_sentinel() {
            return Finding::fail("version", fact)
                .means("a Sentinel keeps no records")
                .remedy("use `redis+sentinel://host,host/service`, or the address of the Redis");
        }
        if !self.is_new_enough() {
            return Finding::fail("version", fact)
                .means("the store refuses this server")
                .remedy(format!("update it to {major}.{minor} or newer"));
        }
        let finding = Finding::ok("version", fact);
        if self.reads_declarations() {
            return finding;
        }
        finding.means("each claim is a script; from Redis 7 a claim is one plain command")
    }

    fn role_finding(&self, used: Use) -> Finding {
        if self.is_replica() {
            let link = match self.follows() {
                Some(false) => "replica, and its link to the primary is down",
                _ => "replica",
            };
            return Finding::fail("role", link)
                .means(format!(
                    "{} as long as it is read-only",
                    used.without_writes()
                ))
                .remedy("give idem the primary, or `redis+sentinel://…`, which follows it");
        }
        match self.role() {
            Some("master") => Finding::ok("role", "primary"),
            Some(role) => Finding::warn("role", role.to_owned()),
            None => Finding::warn("role", "not shown to this user")
                .remedy("make sure that it is a primary"),
        }
    }

    /// A refusal of writes at this moment.
    fn writes_finding(&self, used: Use) -> Option<Finding> {
        let good: Option<u64> = self.number("min_slaves_good_slaves");
        let too_few = matches!((good, self.needed()), (Some(good), Some(needed)) if good < needed);
        let expected = too_few.then_some(NoWrites::TooFewReplicas);
        let why = self.no_writes.or(expected)?;
        if self.is_replica() && matches!(why, NoWrites::ReadOnly | NoWrites::NoPrimary) {
            // The finding about its role reports that.
            return None;
        }
        let (fact, remedy) = match why {
            NoWrites::OutOfMemory => (
                "out of memory (`maxmemory`)",
                "raise `maxmemory`, or remove other data",
            ),
            NoWrites::Disk => (
                "refuses writes, because it could not write its disk (MISCONF)",
                "look at its disk and its log",
            ),
            NoWrites::TooFewReplicas => (
                "refuses writes: too few replicas (`min-replicas-to-write`)",
                "bring the replicas back; look at `INFO replication`",
            ),
            NoWrites::ReadOnly => ("read-only", "give idem the primary"),
            NoWrites::NoPrimary => (
                "its cluster is down",
                "look at `CLUSTER INFO` and `CLUSTER NODES`",
            ),
        };
        let refused = used.without_writes();
        let meaning =
            format!("{refused}; finished answers are still replayed where it can be read");
        Some(Finding::fail("writes", fact).means(meaning).remedy(remedy))
    }

    fn eviction_finding(&self, policy: &str) -> Finding {
        const TOPIC: &str = "eviction";
        const MEANING: &str = "an evicted record lets its body run again";
        if policy == "noeviction" {
            return Finding::ok(TOPIC, policy);
        }
        if self.evicts() {
            return Finding::fail(TOPIC, format!("`{policy}`"))
                .means(format!("{MEANING}, as soon as the memory is full"))
                .remedy("set `maxmemory-policy noeviction`; give a cache a server of its own");
        }
        Finding::warn(TOPIC, format!("`{policy}`, without effect: no `maxmemory`"))
            .means(format!("{MEANING}, once a `maxmemory` is set"))
            .remedy("set `maxmemory-policy noeviction`")
    }

    fn memory_finding(&self, used: Use) -> Option<Finding> {
        const TOPIC: &str = "memory";
        let (taken, limit): (u64, u64) = (self.number("used_memory")?, self.number("maxmemory")?);
        let Some(percent) = taken.saturating_mul(100).checked_div(limit) else {
            let finding = Finding::ok(TOPIC, format!("{}, no limit", bytes(taken)))
                .means("a machine that runs out of memory kills the server")
                .remedy("set `maxmemory` below the memory of the machine");
            return Some(finding);
        };
        let fact = format!("{} of {} ({percent} %)", bytes(taken), bytes(limit));
        if percent < 90 || self.evicts() || self.no_writes == Some(NoWrites::OutOfMemory) {
            return Some(Finding::ok(TOPIC, fact));
        }
        let finding = Finding::warn(TOPIC, fact)
            .means(match used {
                Use::Store => "when it is full, claims are refused; answers of running bodies are stored later",
                Use::Cache => "when it is full, no answer is copied to it",
            })
            .remedy("raise `maxmemory`, shorten `ttl`, or remove other data");
        Some(finding)
    }

    /// A failed write to the disk, after which the server may refuse writes.
    fn disk_finding(&self, used: Use) -> Option<Finding> {
        let failed = self.is("aof_last_write_status", "err")
            || self.is("rdb_last_bgsave_status", "err") && self.snapshots() != Some(false);
        let is_reported = self.no_writes == Some(NoWrites::Disk);
        (failed && !is_reported).then(|| {
            let refused = used.without_writes();
            Finding::warn("persistence", self.persistence_line())
                .means(format!(
                    "it may soon refuse writes (MISCONF): then {refused}"
                ))
                .remedy("look at its disk and its log")
        })
    }

    fn persistence_finding(&self) -> Finding {
        const TOPIC: &str = "persistence";
        let fact = self.persistence_line();
        let Some(append_only) = self.fact("aof_enabled") else {
            return Finding::warn(TOPIC, fact).remedy("make sure that `appendonly` is `yes`");
        };
        if let Some(finding) = self.disk_finding(Use::Store) {
            return finding;
        }
        if append_only == "1" {
            return match self.fact("appendfsync") {
                Some("always") => Finding::ok(TOPIC, fact),
                Some("no") => Finding::warn(TOPIC, fact)
                    .means(
                        "a power loss forgets the last claims and answers: their bodies run again",
                    )
                    .remedy("set `appendfsync everysec`, or `always` where no answer may be lost"),
                _ => Finding::warn(TOPIC, fact)
                    .means(FORGETS_A_SECOND)
                    .remedy("set `appendfsync always` where no answer may be lost"),
            };
        }
        let lost = match self.snapshots() {
            Some(false) => "a restart forgets every claim and answer",
            _ => "a crash forgets the claims and answers since the last snapshot",
        };
        Finding::warn(TOPIC, fact)
            .means(format!("{lost}, and their bodies run again"))
            .remedy("set `appendonly yes`, and `appendfsync everysec` or `always`")
    }

    fn replicas_finding(&self) -> Finding {
        const TOPIC: &str = "replicas";
        let fact = self.replicas_line();
        let there: Option<usize> = self.number("connected_slaves");
        let Some(there) = there.filter(|_| !self.is_replica()) else {
            return Finding::ok(TOPIC, fact);
        };
        if let Durability::Replicated(wanted) = self.durability
            && there < wanted as usize
        {
            return Finding::fail(TOPIC, fact)
                .means("nothing is granted until the replicas of `durability` are there")
                .remedy("bring them back; look at `INFO replication`");
        }
        if there == 0 {
            return Finding::ok(TOPIC, fact)
                .means("while this server is down, calls are refused, and no body runs");
        }
        let lagging = self
            .each_replica()
            .any(|(state, lag)| state != "online" || lag.is_some_and(|lag| lag > 10));
        if lagging {
            return Finding::warn(TOPIC, fact)
                .means("a failover to a replica that is behind forgets what it has not received")
                .remedy("look at `INFO replication` and at the network between them");
        }
        if self.durability != Durability::Acknowledged {
            return Finding::ok(TOPIC, fact);
        }
        let bounded = self.needed().is_some_and(|needed| needed > 0);
        let finding = Finding::ok(TOPIC, fact)
            .means("replication is asynchronous: a failover forgets the last writes, and those bodies run again");
        if bounded {
            finding.remedy("`Durability::Replicated(1)` where a second start is not acceptable")
        } else {
            finding.remedy(
                "`Durability::Replicated(1)` where a second start is not acceptable; `min-replicas-to-write 1` \
                 and `min-replicas-max-lag 10` bound what a cut-off primary accepts",
            )
        }
    }

    fn rights_findings(&self, used: Use) -> Vec<Finding> {
        const TOPIC: &str = "rights";
        const DOCS: &str = "; the ACL line is in the documentation of `RedisStore`";
        let known = match &self.rights {
            Rights::Known(known) => known,
            Rights::Untried => return Vec::new(),
            // The server refuses everything, and another finding reports that.
            Rights::Unknown(_) if self.is_loading() => return Vec::new(),
            Rights::Unknown(why) => {
                let finding = Finding::warn(TOPIC, format!("not known ({why})"));
                return vec![finding.remedy("compare them with the documentation of `RedisStore`")];
            }
        };
        let prefix = &known.prefix;
        let mut findings = Vec::new();
        if !known.needed.is_empty() {
            let lacks = known.needed.join(" ");
            let finding = Finding::fail(TOPIC, format!("lacks {lacks} under `{prefix}:`"));
            let finding = finding.means(used.without_replies());
            findings.push(finding.remedy(format!(
                "grant `{lacks}`{DOCS}; of another prefix of the engine, name it by \
                 `RedisStoreBuilder::checked_prefix`"
            )));
        }
        if !known.notifying.is_empty() {
            let lacks = known.notifying.join(" ");
            let finding = Finding::warn(TOPIC, format!("lacks {lacks}"));
            let finding = finding.means("waiting calls poll instead of being notified");
            findings.push(finding.remedy(format!("grant `{lacks}`{DOCS}")));
        }
        if findings.is_empty() {
            let mut fact = format!("all that idem needs under `{prefix}:`");
            if !known.saving.is_empty() {
                let saving = known.saving.join(" ");
                fact = format!("{fact}; `{saving}` would reduce the server's load");
            }
            findings.push(Finding::ok(TOPIC, fact));
        }
        findings
    }
}

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

    fn persistence_line(&self) -> String {
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

    fn replicas_line(&self) -> String {
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

fn describe((state, lag): (&str, Option<u64>)) -> String {
    match lag {
        Some(lag) if state == "online" => format!("online (lag {lag} s)"),
        _ => state.to_owned(),
    }
}

/// A size in the unit that suits it, with one decimal: `12.3 MiB`.
fn bytes(bytes: u64) -> String {
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
