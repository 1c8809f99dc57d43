//! The servers of a store: one, or the primaries of a cluster.

use std::fmt;

use super::server::Server;
use super::warnings::Use;
use crate::store::redis::address::Address;
use crate::store::{StoreError, StoreErrorKind};

/// Findings about the servers of a store when it connected.
///
/// It covers the store's server, or each primary of its cluster. As text it is a report for the start-up log
/// and for an operator: see [`Server`].
#[derive(Clone, Debug, Default)]
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

    /// Each server, with its address in a cluster.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (Option<&Address>, &Server)> {
        self.servers
            .iter()
            .map(|(at, server)| (at.as_ref(), server))
    }

    /// The primaries that did not reply, and why.
    pub(super) fn missing_nodes(&self) -> impl Iterator<Item = (&Address, &StoreError)> {
        self.missing.iter().map(|(at, why)| (at, why))
    }

    /// The server, or each primary of the cluster.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().map(|(_, server)| server)
    }

    /// Warnings for an operator, a sentence each.
    ///
    /// A warning about several nodes of a cluster is listed once.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings_as(Use::Store)
    }

    pub(crate) fn warnings_as(&self, used: Use) -> Vec<String> {
        let mut warnings: Vec<(String, Vec<&Address>)> = Vec::new();
        for (at, server) in &self.servers {
            for warning in server.warnings_as(used) {
                let place = warnings.iter().position(|(known, _)| *known == warning);
                let place = place.unwrap_or_else(|| {
                    warnings.push((warning, Vec::new()));
                    warnings.len() - 1
                });
                warnings[place].1.extend(at);
            }
        }
        let all = self.servers.len();
        let found = warnings.into_iter().map(|(warning, at)| {
            if at.len() == all || at.is_empty() {
                return warning;
            }
            let at: Vec<_> = at.iter().map(ToString::to_string).collect();
            format!("{}: {warning}", at.join(", "))
        });
        let missing = self.missing.iter().map(|(at, why)| {
            let refused = match used {
                Use::Store => "calls of its keys are refused",
                Use::Cache => "its copies of answers are missing",
            };
            format!("{at} does not answer, and {refused} until it does: {why}")
        });
        found.chain(missing).collect()
    }

    /// Refuses servers on which the guarantee cannot hold.
    pub(crate) fn refuse(&self, allow_eviction: bool) -> Result<(), StoreError> {
        for (at, server) in &self.servers {
            server.refuse(allow_eviction).map_err(|error| match at {
                Some(at) => error.at(at),
                None => error,
            })?;
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

    /// The command that notifies watchers, on each server.
    pub(crate) fn publish(&self) -> &'static str {
        let oldest = self.servers().min_by_key(|server| server.version());
        oldest.map_or("PUBLISH", Server::publish)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (at, server)) in self.servers.iter().enumerate() {
            if place > 0 {
                writeln!(f)?;
            }
            if let Some(at) = at {
                write!(f, "{at}: ")?;
            }
            write!(f, "{server}")?;
        }
        for (at, why) in &self.missing {
            write!(f, "\n{at}: does not answer: {why}")?;
        }
        Ok(())
    }
}
