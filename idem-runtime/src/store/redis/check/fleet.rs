//! The servers of a store, of which there is one, or the primaries of a cluster.

use std::fmt;

use super::Server;
use crate::store::StoreError;
use crate::store::redis::address::Address;

/// What was found out when the store connected, of its server, or of each primary of its cluster.
///
/// As text it is a report for the log of a start and for an operator: see [`Server`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report(Vec<(Option<Address>, Server)>);

impl Report {
    pub(in crate::store::redis) fn of_server(server: Server) -> Self {
        Self(vec![(None, server)])
    }

    pub(in crate::store::redis) fn of_cluster(
        servers: impl IntoIterator<Item = (Address, Server)>,
    ) -> Self {
        let servers = servers.into_iter();
        Self(servers.map(|(at, server)| (Some(at), server)).collect())
    }

    /// The server, or each primary of the cluster.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.0.iter().map(|(_, server)| server)
    }

    /// What an operator should know, a sentence each. One that several nodes of a cluster deserve is
    /// told once.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<(String, Vec<&Address>)> = Vec::new();
        for (at, server) in &self.0 {
            for warning in server.warnings() {
                let place = warnings.iter().position(|(known, _)| *known == warning);
                let place = place.unwrap_or_else(|| {
                    warnings.push((warning, Vec::new()));
                    warnings.len() - 1
                });
                warnings[place].1.extend(at);
            }
        }
        let all = self.0.len();
        let told = warnings.into_iter().map(|(warning, at)| {
            if at.len() == all || at.is_empty() {
                return warning;
            }
            let at: Vec<_> = at.iter().map(ToString::to_string).collect();
            format!("{}: {warning}", at.join(", "))
        });
        told.collect()
    }

    /// Refuses servers on which the guarantee cannot hold.
    pub(in crate::store::redis) fn refuse(&self, allow_eviction: bool) -> Result<(), StoreError> {
        for (at, server) in &self.0 {
            server.refuse(allow_eviction).map_err(|error| match at {
                Some(at) => StoreError::new(error.kind(), format!("{at}: {error}")),
                None => error,
            })?;
        }
        Ok(())
    }

    /// Whether the scripts of all servers may declare what they do.
    pub(in crate::store::redis) fn reads_declarations(&self) -> bool {
        self.servers().all(Server::reads_declarations)
    }

    /// The command that tells who waits, on each server.
    pub(in crate::store::redis) fn publish(&self) -> &'static str {
        let oldest = self.servers().min_by_key(|server| server.version());
        oldest.map_or("PUBLISH", Server::publish)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (at, server)) in self.0.iter().enumerate() {
            if place > 0 {
                writeln!(f)?;
            }
            if let Some(at) = at {
                write!(f, "{at}: ")?;
            }
            write!(f, "{server}")?;
        }
        Ok(())
    }
}
