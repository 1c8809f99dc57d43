//! The facts about a server as findings: level, text, consequence and remedy.

use super::server::{NoWrites, OLDEST, Rights, Server};
use crate::store::Finding;
use crate::store::redis::server::Durability;

/// Topics whose failures refuse the server.
pub(super) const VERSION: &str = "version";
pub(super) const EVICTION: &str = "eviction";
const UNKNOWN: &str = "unknown";

/// The consequence of the default `appendfsync`, for the report alone.
pub(super) const FORGETS_A_SECOND: &str =
    "a crash of the machine forgets up to a second: those bodies run again";

/// Topics of a server's losses and of its clock: a cache loses copies, which costs time only.
const LOSSES: [&str; 5] = ["settings", EVICTION, "persistence", "replicas", "clock"];

/// Whether the finding is one about a cache as well.
pub(crate) fn concerns_a_cache(finding: &Finding) -> bool {
    !LOSSES.contains(&finding.topic)
}

impl Server {
    /// The findings about this server.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.version_finding(), self.role_finding()];
        if self.is_loading() {
            findings.push(
                Finding::fail("state", "loading its data")
                    .means("nothing is read or written until it has loaded")
                    .remedy("wait; look at its log if it takes long"),
            );
        }
        findings.extend(self.writes_finding());
        findings.extend(self.memory_finding());
        findings.extend(self.disk_finding());
        match self.policy() {
            Some(policy) => findings.extend([
                self.eviction_finding(policy),
                self.persistence_finding(),
                self.replicas_finding(),
                Finding::of_clock(self.clock_ahead_us),
            ]),
            None => findings.push(
                Finding::warn("settings", "not shown to this user (INFO is not allowed)")
                    .means("a record that is evicted, or forgotten by a restart, lets its body run again")
                    .remedy(
                        "make sure that `maxmemory-policy` is `noeviction` and `appendonly` is `yes`, \
                         or grant `+info`",
                    ),
            ),
        }
        findings.extend(self.rights_findings());
        findings
    }

    fn version_finding(&self) -> Finding {
        let (major, minor) = OLDEST;
        let fact = format!("{}, {}", self.name(), self.mode().unwrap_or("mode unknown"));
        if self.is_sentinel() {
            return Finding::fail(VERSION, fact)
                .means("a Sentinel keeps no records")
                .remedy("use `redis+sentinel://host,host/service`, or the address of the Redis");
        }
        if self.version().is_none() {
            return Finding::warn(VERSION, fact)
                .remedy(format!("make sure that it is {major}.{minor} or newer"));
        }
        if !self.is_new_enough() {
            return Finding::fail(VERSION, fact)
                .means("it is too old")
                .remedy(format!("update it to {major}.{minor} or newer"));
        }
        let finding = Finding::ok(VERSION, fact);
        if self.reads_declarations() {
            return finding;
        }
        finding.means("each claim is a script; from Redis 7 a claim is one plain command")
    }

    fn role_finding(&self) -> Finding {
        if self.is_replica() {
            let link = match self.follows() {
                Some(false) => "replica, and its link to the primary is down",
                _ => "replica",
            };
            return Finding::fail("role", link)
                .means("writes are refused as long as it is read-only")
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
    fn writes_finding(&self) -> Option<Finding> {
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
        let meaning = "writes are refused; answers are still replayed where it can be read";
        Some(Finding::fail("writes", fact).means(meaning).remedy(remedy))
    }

    fn eviction_finding(&self, policy: &str) -> Finding {
        const MEANING: &str = "an evicted record lets its body run again";
        if policy == "noeviction" {
            return Finding::ok(EVICTION, policy);
        }
        if self.evicts() {
            return Finding::fail(EVICTION, format!("`{policy}`"))
                .means(format!("{MEANING}, as soon as the memory is full"))
                .remedy("set `maxmemory-policy noeviction`; give a cache a server of its own");
        }
        Finding::warn(
            EVICTION,
            format!("`{policy}`, without effect: no `maxmemory`"),
        )
        .means(format!("{MEANING}, once a `maxmemory` is set"))
        .remedy("set `maxmemory-policy noeviction`")
    }

    fn memory_finding(&self) -> Option<Finding> {
        const TOPIC: &str = "memory";
        let (taken, limit): (u64, u64) = (self.number("used_memory")?, self.number("maxmemory")?);
        let shown = |name| self.fact(name).unwrap_or(UNKNOWN);
        let used = shown("used_memory_human");
        let Some(percent) = taken.saturating_mul(100).checked_div(limit) else {
            let finding = Finding::ok(TOPIC, format!("{used}, no limit"))
                .means("a machine that runs out of memory kills the server")
                .remedy("set `maxmemory` below the memory of the machine");
            return Some(finding);
        };
        let fact = format!("{used} of {} ({percent} %)", shown("maxmemory_human"));
        if percent < 90 || self.evicts() || self.no_writes == Some(NoWrites::OutOfMemory) {
            return Some(Finding::ok(TOPIC, fact));
        }
        let finding = Finding::warn(TOPIC, fact)
            .means("when it is full, writes are refused; finished answers are stored later")
            .remedy("raise `maxmemory`, shorten `ttl`, or remove other data");
        Some(finding)
    }

    /// A failed write to disk, after which writes may be refused.
    fn disk_finding(&self) -> Option<Finding> {
        let append = self.is("aof_last_write_status", "err");
        let snapshot = self.is("rdb_last_bgsave_status", "err") && self.snapshots() != Some(false);
        if !append && !snapshot || self.no_writes == Some(NoWrites::Disk) {
            return None;
        }
        let finding = Finding::warn(
            "disk",
            if append {
                "aof_last_write_status err"
            } else {
                "rdb_last_bgsave_status err"
            },
        );
        Some(
            finding
                .means("it may soon refuse writes (MISCONF)")
                .remedy("look at its disk and its log"),
        )
    }

    fn persistence_finding(&self) -> Finding {
        const TOPIC: &str = "persistence";
        let fact = self.settings(&["aof_enabled", "appendfsync", "save"]);
        let Some(append_only) = self.fact("aof_enabled") else {
            return Finding::warn(TOPIC, fact).remedy("make sure that `appendonly` is `yes`");
        };
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
        let mut fact = self.settings(&[
            "master_link_status",
            "connected_slaves",
            "min-replicas-to-write",
        ]);
        for (state, lag) in self.each_replica() {
            let lag = lag.map_or(String::new(), |lag| format!(" lag {lag}"));
            fact = format!("{fact}, {state}{lag}");
        }
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

    fn rights_findings(&self) -> Vec<Finding> {
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
            let finding = finding.means("what needs them is refused");
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

    /// The settings as the server names them: `aof_enabled 1, appendfsync always`.
    fn settings(&self, names: &[&str]) -> String {
        let shown = names.iter().filter_map(|name| {
            let value = self.fact(name)?;
            let value = if value.is_empty() { "\"\"" } else { value };
            Some(format!("{name} {value}"))
        });
        let shown: Vec<_> = shown.collect();
        if shown.is_empty() {
            return UNKNOWN.to_owned();
        }
        shown.join(", ")
    }
}
