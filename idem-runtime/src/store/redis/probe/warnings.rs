//! Warnings about the server for an operator.

use super::acl::{MissingRights, NoWrites, Rights};
use super::server::{OLDEST, Server};
use crate::store::redis::durability::Durability;

/// What the engine uses a Redis for, on which the effect of a fault depends.
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
    /// Warnings for an operator, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings_as(Use::Store)
    }

    pub(super) fn warnings_as(&self, used: Use) -> Vec<String> {
        let mut warnings = Vec::new();
        if used == Use::Store {
            warnings.extend(self.of_eviction());
        }
        if self.is_replica() {
            warnings.push(self.of_a_replica(used));
        }
        if self.persistence.loading {
            warnings.push(format!(
                "Redis is loading its data: {} until it has; wait, and look at its log if it \
                 takes long",
                used.without_replies()
            ));
        } else if used == Use::Store {
            warnings.extend(self.of_persistence().map(str::to_owned));
        }
        warnings.extend(self.of_writes(used));
        self.of_rights(used, &mut warnings);
        if self.version.is_none() {
            warnings.push(format!(
                "Redis does not tell its version; {}.{} or newer is needed",
                OLDEST.0, OLDEST.1
            ));
        }
        warnings
    }

    fn of_eviction(&self) -> Option<String> {
        match &self.memory.policy {
            None => Some(
                "Redis does not tell this user its `maxmemory-policy` (INFO is not allowed); make \
                 sure that it is `noeviction`, since an evicted record lets its body run again"
                    .to_owned(),
            ),
            Some(policy) if self.evicts() => Some(format!(
                "Redis evicts keys when its memory is full (`maxmemory-policy {policy}`): the \
                 guarantee ends there"
            )),
            Some(policy) if policy != "noeviction" => Some(format!(
                "Redis has `maxmemory-policy {policy}`, which will evict records as soon as a \
                 `maxmemory` is set; set `noeviction`"
            )),
            Some(_) => None,
        }
    }

    fn of_a_replica(&self, used: Use) -> String {
        let link = match self.replication.follows {
            Some(false) => ", and its link to the primary is down",
            _ => "",
        };
        format!(
            "this Redis is a replica{link}: {} as long as it is read-only; connect to the primary",
            used.without_writes()
        )
    }

    fn of_persistence(&self) -> Option<&'static str> {
        let persistence = &self.persistence;
        match (persistence.append_only, persistence.snapshots) {
            (Some(false), Some(false)) => Some(
                "Redis keeps nothing on disk: a restart forgets every claim and answer, and their \
                 bodies run again; set `appendonly yes`",
            ),
            (Some(false), Some(true)) => Some(
                "Redis keeps snapshots only: a crash forgets the claims and answers since the last \
                 one, and their bodies run again; set `appendonly yes`",
            ),
            (Some(false), None) => Some(
                "Redis has no append-only file: a crash forgets the claims and answers since its \
                 last snapshot, if it makes any, and their bodies run again; set `appendonly yes`",
            ),
            _ => None,
        }
    }

    /// Warning about refused writes, present or expected.
    fn of_writes(&self, used: Use) -> Option<String> {
        let replication = &self.replication;
        let too_few = matches!(
            (replication.good, replication.needed),
            (Some(good), Some(needed)) if good < needed
        );
        let disk = if self.persistence.append_failed {
            "its append-only file"
        } else {
            "its last snapshot"
        };
        let disk_failed = self.persistence.append_failed
            || (self.persistence.snapshot_failed && self.persistence.snapshots != Some(false));
        let (no_writes, no_replies) = (used.without_writes(), used.without_replies());
        let lacks_replicas = || match used {
            Use::Store => self.lacks_replicas(),
            Use::Cache => None,
        };
        match self.no_writes {
            Some(NoWrites::OutOfMemory) => Some(format!(
                "Redis is out of memory (`maxmemory`): {no_writes}, finished answers are still \
                 replayed; give it more, or remove other data"
            )),
            Some(NoWrites::Disk) => Some(format!(
                "Redis could not write {disk} and refuses writes (MISCONF): {no_writes} until it \
                 can; look at its disk and its log"
            )),
            Some(NoWrites::NoPrimary) if !self.is_replica() => Some(format!(
                "Redis is a part of a cluster that is down: {no_replies} until it is up; look at \
                 `CLUSTER INFO`"
            )),
            Some(NoWrites::ReadOnly) if !self.is_replica() => Some(
                "Redis has just become a replica and refuses writes; connect to the primary"
                    .to_owned(),
            ),
            why if too_few || why == Some(NoWrites::TooFewReplicas) => Some(format!(
                "Redis has too few replicas to accept writes (`min-replicas-to-write`): \
                 {no_writes} until they are back; look at `INFO replication`"
            )),
            _ => lacks_replicas().or_else(|| {
                if disk_failed {
                    return Some(format!(
                        "Redis could not write {disk}, and may soon refuse writes; look at its \
                         disk and its log"
                    ));
                }
                self.of_room(used)
            }),
        }
    }

    fn lacks_replicas(&self) -> Option<String> {
        let Durability::Replicated(wanted) = self.durability else {
            return None;
        };
        let there = self.replication.replicas.filter(|_| !self.is_replica())?;
        (there < wanted as usize).then(|| {
            format!(
                "Redis has {there} replicas, and `durability` waits for {wanted}: nothing is \
                 granted until they are there; look at `INFO replication`"
            )
        })
    }

    fn of_room(&self, used: Use) -> Option<String> {
        let (taken, limit) = (self.memory.used?, self.memory.limit?);
        let percent = taken.saturating_mul(100).checked_div(limit)?;
        let evicts = self.evicts();
        (percent >= 90 && !evicts).then(|| {
            format!(
                "Redis uses {percent} % of its `maxmemory`; when it is full, {}; give it more, or \
                 remove other data",
                used.without_writes()
            )
        })
    }

    fn of_rights(&self, used: Use, warnings: &mut Vec<String>) {
        let known = match &self.rights {
            Rights::Known(known) => known,
            // The server refuses everything, and another warning reports that.
            Rights::Unknown(_) if self.persistence.loading => return,
            Rights::Unknown(why) => {
                warnings.push(format!(
                    "whether this Redis user has the rights that idem needs is not known, since \
                     the script that finds out failed ({why}); the ACL line is in the documentation \
                     of `RedisStore`"
                ));
                return;
            }
            Rights::Untried => return,
        };
        let MissingRights {
            prefix,
            needed,
            notifying,
            ..
        } = known;
        if !needed.is_empty() {
            warnings.push(format!(
                "this Redis user lacks {} for keys under `{prefix}:`, so that {}; grant it (the \
                 ACL line is in the documentation of `RedisStore`), or name the engine's prefix by \
                 `RedisStoreBuilder::checked_prefix` if it is another",
                needed.join(" "),
                match used {
                    Use::Store => "calls will be refused",
                    Use::Cache => "answers may not be copied to it or replayed from it",
                }
            ));
        }
        if !notifying.is_empty() {
            warnings.push(format!(
                "this Redis user lacks {} for channels under `{prefix}:`, so that waiting calls \
                 ask again and again instead of being told; grant it (the ACL line is in the \
                 documentation of `RedisStore`)",
                notifying.join(" ")
            ));
        }
    }
}
