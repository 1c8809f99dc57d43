//! The servers of a store: one, or the primaries of a cluster.

use std::fmt;

use super::findings::{EVICTION, FORGETS_A_SECOND, VERSION};
use super::server::Server;
use crate::store::redis::endpoint::Address;
use crate::store::{Finding, FindingLevel, StoreError, StoreErrorKind};

/// Findings about the servers of a store when it connected.
///
/// It covers the store's server, or each primary of its cluster. As text it is a line for each finding, for the
/// start-up log and for an operator. It holds no user and no password, and no address but those of a cluster's nodes:
///
/// ```text
/// ok   version: Redis 7.0.15, standalone
/// ok   role: primary
/// ok   memory: 12.30M of 1.00G (1 %)
/// ok   eviction: noeviction
/// ok   persistence: aof_enabled 1, appendfsync always, save ""
/// ok   replicas: connected_slaves 1, min-replicas-to-write 1, online lag 0
/// ok   clock: that of this machine, to the millisecond
/// ok   rights: all that idem needs under `idem:`
/// ```
#[derive(Clone, Debug)]
pub struct Report {
    servers: Vec<(Option<Address>, Server)>,
    /// Primaries that did not answer, and why.
    missing: Vec<(Address, StoreError)>,
}

impl Report {
    pub(crate) fn of_server(server: Server) -> Self {
        Self {
            servers: vec![(None, server)],
            missing: Vec::new(),
        }
    }

    pub(crate) fn of_cluster() -> Self {
        Self {
            servers: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Adds a primary of a cluster.
    pub(crate) fn add(&mut self, at: Address, server: Server) {
        self.servers.push((Some(at), server));
    }

    /// Adds a primary of a cluster that does not answer.
    pub(crate) fn miss(&mut self, at: Address, why: StoreError) {
        self.missing.push((at, why));
    }

    /// The complete report, sorted by address. An error if no server answered.
    pub(crate) fn settled(mut self) -> Result<Self, StoreError> {
        self.servers
            .sort_by_cached_key(|(at, _)| at.as_ref().map(ToString::to_string));
        self.missing.sort_by_cached_key(|(at, _)| at.to_string());
        if !self.servers.is_empty() {
            return Ok(self);
        }
        Err(match self.missing.pop() {
            Some((at, error)) => error.at(&at),
            None => StoreError::new(
                StoreErrorKind::Unavailable,
                "connecting to Redis: the cluster has no primary; look at `CLUSTER INFO`",
            ),
        })
    }

    fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().map(|(_, server)| server)
    }

    /// The findings about each server, with the address of a cluster's node.
    #[must_use]
    pub fn findings(&self) -> Vec<(Option<String>, Finding)> {
        let there = self.servers.iter().flat_map(|(at, server)| {
            let at = at.as_ref().map(ToString::to_string);
            let findings = server.findings().into_iter();
            findings.map(move |finding| (at.clone(), finding))
        });
        let missing = self.missing.iter().map(|(at, why)| {
            let finding = Finding::fail("node", format!("no reply: {why}"))
                .means("its keys are not read or written until it replies")
                .remedy("start it, or let a replica take over; look at `CLUSTER NODES`");
            (Some(at.to_string()), finding)
        });
        there.chain(missing).collect()
    }

    /// The selected findings above level `Ok`, a sentence each.
    ///
    /// A warning about several nodes of a cluster is listed once. The second that a crash forgets with
    /// `appendfsync everysec`, the default of Redis, is a finding only.
    pub(crate) fn warnings(&self, selects: impl Fn(&Finding) -> bool) -> Vec<String> {
        let mut warnings: Vec<(Finding, Vec<String>)> = Vec::new();
        for (at, finding) in self.findings() {
            let is_in_order = finding.level == FindingLevel::Ok;
            if is_in_order || finding.meaning == FORGETS_A_SECOND || !selects(&finding) {
                continue;
            }
            match warnings.iter_mut().find(|(known, _)| *known == finding) {
                Some((_, nodes)) => nodes.extend(at),
                None => warnings.push((finding, at.into_iter().collect())),
            }
        }
        let all = self.servers.len();
        let text = |(finding, at): (Finding, Vec<String>)| match at.len() {
            nodes if nodes == all || nodes == 0 => format!("Redis {finding}"),
            _ => format!("{}: Redis {finding}", at.join(", ")),
        };
        warnings.into_iter().map(text).collect()
    }

    /// Refuses servers on which the guarantee cannot hold.
    pub(crate) fn refuse(&self, allow_eviction: bool) -> Result<(), StoreError> {
        for (at, finding) in self.findings() {
            let accept = match finding.topic {
                _ if finding.level != FindingLevel::Fail => continue,
                VERSION => "",
                EVICTION if !allow_eviction => ", or accept it by `allow_eviction`",
                _ => continue,
            };
            let message = format!("Redis {finding}{accept}");
            let error = StoreError::new(StoreErrorKind::Refused, message);
            return Err(match at {
                Some(at) => error.at(&at),
                None => error,
            });
        }
        Ok(())
    }

    /// Whether the scripts of all servers may declare what they do.
    pub(crate) fn reads_declarations(&self) -> bool {
        self.servers().all(Server::reads_declarations)
    }

    /// Whether all servers have compare-and-set.
    pub(crate) fn compares(&self) -> bool {
        self.servers().all(Server::compares)
    }

    /// Whether scripts notify the watchers of a key in its shard alone.
    pub(crate) fn publishes_in_shards(&self) -> bool {
        self.publish() == "SPUBLISH"
    }

    /// The command that notifies watchers, on each server.
    pub(crate) fn publish(&self) -> &'static str {
        let oldest = self.servers().min_by_key(|server| server.version());
        oldest.map_or("PUBLISH", Server::publish)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (at, finding)) in self.findings().iter().enumerate() {
            if place > 0 {
                writeln!(f)?;
            }
            if let Some(at) = at {
                write!(f, "{at}: ")?;
            }
            write!(f, "{:<4} {finding}", finding.level)?;
        }
        Ok(())
    }
}
