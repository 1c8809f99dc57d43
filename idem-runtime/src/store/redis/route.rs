//! Which connection a command goes through.

use redis::{Cmd, Value};

use super::check::{Look, Report, Server};
use super::cluster::Cluster;
use super::link::{Failure, Order};
use super::node::{Keeping, Node};
use crate::store::{StoreError, StoreErrorKind};

/// One server, or the nodes of a cluster.
#[derive(Debug)]
pub(super) enum Route {
    /// Boxed, as the other is larger.
    Node(Box<Node>),
    Cluster(Box<Cluster>),
}

impl Route {
    /// Looks at the server, or at each primary.
    pub(super) async fn look(&self, look: &Look) -> Result<Report, StoreError> {
        let cluster = match self {
            Self::Node(node) => return Ok(Report::of_server(Server::ask(&**node, look).await?)),
            Self::Cluster(cluster) => cluster,
        };
        let mut servers = Vec::new();
        for (at, node) in cluster.primaries().await? {
            servers.push((at, Server::ask(&*node, look).await?));
        }
        if servers.is_empty() {
            return Err(no_primary());
        }
        servers.sort_by_key(|(at, _)| at.to_string());
        Ok(Report::of_cluster(servers))
    }

    /// Sends a command about `key` and waits for its reply.
    pub(super) async fn send(
        &self,
        key: &str,
        command: &Cmd,
        keeping: Keeping,
    ) -> Result<Value, Failure> {
        let order = Order {
            key: Some(key),
            ..Order::new(command)
        };
        match self {
            Self::Node(node) => node.send(order, keeping).await,
            Self::Cluster(cluster) => cluster.send(key, order, keeping).await,
        }
    }
}

fn no_primary() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "connecting to Redis: the cluster has no primary; look at `CLUSTER INFO`",
    )
}
