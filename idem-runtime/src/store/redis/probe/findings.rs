//! The report as findings: each fact with its level, its consequence and the remedy.

use super::acl::{NoWrites, Rights};
use super::display::bytes;
use super::report::Report;
use super::server::{OLDEST, Server};
use crate::store::Finding;
use crate::store::redis::durability::Durability;

impl Report {
    /// The findings about each server, with the address of a cluster's node.
    ///
    /// More detailed than [`warnings`](Self::warnings): a finding states its level and the remedy apart from the fact.
    #[must_use]
    pub fn findings(&self) -> Vec<(Option<String>, Finding)> {
        let there = self.nodes().flat_map(|(at, server)| {
            let at = at.map(ToString::to_string);
            server.findings().into_iter().map(move |f| (at.clone(), f))
        });
        let missing = self.missing_nodes().map(|(at, why)| {
            let finding = Finding::fail("node", format!("no reply: {why}"))
                .means("calls of its keys are refused until it replies")
                .remedy("start it, or let a replica take over; look at `CLUSTER NODES`");
            (Some(at.to_string()), finding)
        });
        there.chain(missing).collect()
    }
}

impl Server {
    /// The findings about this server.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.version_finding(), self.role_finding()];
        if self.persistence.loading {
            findings.push(
                Finding::fail("state", "loading its data")
                    .means("calls are refused until it has loaded")
                    .remedy("wait; look at its log if it takes long"),
            );
        }
        findings.extend(self.writes_finding());
        findings.extend([
            self.eviction_finding(),
            self.memory_finding(),
            self.persistence_finding(),
            self.replicas_finding(),
        ]);
        findings.extend(self.rights_findings());
        findings.push(Finding::of_clock(self.clock_ahead_us));
        findings
    }

    fn version_finding(&self) -> Finding {
        let (major, minor) = OLDEST;
        let fact = format!("{}, {}", self.name(), self.mode().unwrap_or("mode unknown"));
        if self.version.is_none() {
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

    fn role_finding(&self) -> Finding {
        if self.is_replica() {
            let link = match self.replication.follows {
                Some(false) => "replica, and its link to the primary is down",
                _ => "replica",
            };
            return Finding::fail("role", link)
                .means("claims are refused as long as it is read-only")
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
        let (fact, remedy) = match self.no_writes? {
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
        let meaning =
            "claims are refused; finished answers are still replayed where it can be read";
        Some(Finding::fail("writes", fact).means(meaning).remedy(remedy))
    }

    fn eviction_finding(&self) -> Finding {
        const TOPIC: &str = "eviction";
        const MEANING: &str = "an evicted record lets its body run again";
        match self.memory.policy.as_deref() {
            None => Finding::warn(TOPIC, "not shown to this user (INFO is not allowed)")
                .means(MEANING)
                .remedy("make sure that `maxmemory-policy` is `noeviction`, or grant `+info`"),
            Some("noeviction") => Finding::ok(TOPIC, "noeviction"),
            Some(policy) if self.evicts() => Finding::fail(TOPIC, format!("`{policy}`"))
                .means(format!("{MEANING}, as soon as the memory is full"))
                .remedy("set `maxmemory-policy noeviction`; give a cache a server of its own"),
            Some(policy) => {
                Finding::warn(TOPIC, format!("`{policy}`, without effect: no `maxmemory`"))
                    .means(format!("{MEANING}, once a `maxmemory` is set"))
                    .remedy("set `maxmemory-policy noeviction`")
            }
        }
    }

    fn memory_finding(&self) -> Finding {
        const TOPIC: &str = "memory";
        let (Some(used), Some(limit)) = (self.memory.used, self.memory.limit) else {
            return Finding::warn(TOPIC, "not shown to this user (INFO is not allowed)");
        };
        let Some(percent) = used.saturating_mul(100).checked_div(limit) else {
            return Finding::ok(TOPIC, format!("{}, no limit", bytes(used)))
                .means("a machine that runs out of memory kills the server")
                .remedy("set `maxmemory` below the memory of the machine");
        };
        let fact = format!("{} of {} ({percent} %)", bytes(used), bytes(limit));
        if percent < 90 {
            return Finding::ok(TOPIC, fact);
        }
        Finding::warn(TOPIC, fact)
            .means(
                "when it is full, claims are refused; answers of running bodies are stored later",
            )
            .remedy("raise `maxmemory`, shorten `ttl`, or remove other data")
    }

    fn persistence_finding(&self) -> Finding {
        const TOPIC: &str = "persistence";
        let persistence = &self.persistence;
        let fact = self.persistence_line();
        let Some(append_only) = persistence.append_only else {
            return Finding::warn(TOPIC, "not shown to this user (INFO is not allowed)")
                .means("what a restart forgets is not known")
                .remedy("make sure that `appendonly` is `yes`");
        };
        let refuses = persistence.append_failed
            || persistence.snapshot_failed && persistence.snapshots != Some(false);
        if refuses {
            return Finding::warn(TOPIC, fact)
                .means("it may soon refuse writes (MISCONF): then claims are refused")
                .remedy("look at its disk and its log");
        }
        if append_only {
            return match persistence.fsync.as_deref() {
                Some("always") => Finding::ok(TOPIC, fact),
                Some("no") => Finding::warn(TOPIC, fact)
                    .means(
                        "a power loss forgets the last claims and answers: their bodies run again",
                    )
                    .remedy("set `appendfsync everysec`, or `always` where no answer may be lost"),
                _ => Finding::warn(TOPIC, fact)
                    .means("a crash of the machine forgets up to a second: those bodies run again")
                    .remedy("set `appendfsync always` where no answer may be lost"),
            };
        }
        let lost = match persistence.snapshots {
            Some(false) => "a restart forgets every claim and answer",
            _ => "a crash forgets the claims and answers since the last snapshot",
        };
        Finding::warn(TOPIC, fact)
            .means(format!("{lost}, and their bodies run again"))
            .remedy("set `appendonly yes`, and `appendfsync everysec` or `always`")
    }

    fn replicas_finding(&self) -> Finding {
        const TOPIC: &str = "replicas";
        let replication = &self.replication;
        let fact = self.replicas_line();
        let Some(there) = replication.replicas.filter(|_| !self.is_replica()) else {
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
        let lagging = (replication.each.iter())
            .any(|replica| replica.state != "online" || replica.lag.is_some_and(|lag| lag > 10));
        if lagging {
            return Finding::warn(TOPIC, fact)
                .means("a failover to a replica that is behind forgets what it has not received")
                .remedy("look at `INFO replication` and at the network between them");
        }
        if self.durability != Durability::Acknowledged {
            return Finding::ok(TOPIC, fact);
        }
        let bounded = replication.needed.is_some_and(|needed| needed > 0);
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
            let finding = finding.means("calls are refused");
            findings.push(finding.remedy(format!("grant `{lacks}`{DOCS}")));
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
