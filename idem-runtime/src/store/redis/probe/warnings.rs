//! Warnings about the server for an operator.

use super::acl::{MissingRights, NoWrites, Rights};
use super::server::{OLDEST, Server};
use crate::store::redis::durability::Durability;

impl Server {
    /// Warnings for an operator, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        warnings.extend(self.of_eviction());
        if self.is_replica() {
            warnings.push(self.of_a_replica());
        }
        warnings.extend(self.of_persistence().map(str::to_owned));
        warnings.extend(self.of_writes());
        self.of_rights(&mut warnings);
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

    fn of_a_replica(&self) -> String {
        let link = match self.replication.follows {
            Some(false) => ", and its link to the primary is down",
            _ => "",
        };
        format!(
            "this Redis is a replica{link}: claims will be refused as long as it is read-only; \
             connect to the primary"
        )
    }

    fn of_persistence(&self) -> Option<&'static str> {
        let persistence = &self.persistence;
        if persistence.loading {
            return Some(
                "Redis is loading its data: calls are refused until it has; wait, and look at its \
                 log if it takes long",
            );
        }
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
    fn of_writes(&self) -> Option<String> {
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
        match self.no_writes {
            Some(NoWrites::OutOfMemory) => Some(
                "Redis is out of memory (`maxmemory`): claims are refused, finished answers are \
                 still replayed; give it more, or remove other data"
                    .to_owned(),
            ),
            Some(NoWrites::Disk) => Some(format!(
                "Redis could not write {disk} and refuses writes (MISCONF): claims are refused \
                 until it can; look at its disk and its log"
            )),
            Some(NoWrites::TooFewReplicas) => Some(TOO_FEW_REPLICAS.to_owned()),
            Some(NoWrites::NoPrimary) if !self.is_replica() => Some(
                "Redis is a part of a cluster that is down: calls are refused until it is up; look \
                 at `CLUSTER INFO`"
                    .to_owned(),
            ),
            Some(NoWrites::ReadOnly) if !self.is_replica() => Some(
                "Redis has just become a replica and refuses writes; connect to the primary"
                    .to_owned(),
            ),
            _ if too_few => Some(TOO_FEW_REPLICAS.to_owned()),
            _ if self.lacks_replicas().is_some() => self.lacks_replicas(),
            _ if disk_failed => Some(format!(
                "Redis could not write {disk}, and may soon refuse writes; look at its disk and \
                 its log"
            )),
            _ => self.of_room(),
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

    fn of_room(&self) -> Option<String> {
        let (used, limit) = (self.memory.used?, self.memory.limit?);
        let percent = used.saturating_mul(100).checked_div(limit)?;
        let evicts = self.evicts();
        (percent >= 90 && !evicts).then(|| {
            format!(
                "Redis uses {percent} % of its `maxmemory`; when it is full, claims are refused; \
                 give it more, or remove other data"
            )
        })
    }

    fn of_rights(&self, warnings: &mut Vec<String>) {
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
                "this Redis user lacks {} for keys under `{prefix}:`, so that calls will be \
                 refused; grant it (the ACL line is in the documentation of `RedisStore`), or name \
                 the engine's prefix by `RedisStoreBuilder::checked_prefix` if it is another",
                needed.join(" ")
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

const TOO_FEW_REPLICAS: &str = "Redis has too few replicas to accept writes \
                                (`min-replicas-to-write`): claims are refused until they are back; \
                                look at `INFO replication`";
