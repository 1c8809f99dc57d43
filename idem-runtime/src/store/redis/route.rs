//! Which connection a command goes through.

use redis::{Cmd, Value};

use super::cluster::Cluster;
use super::link::{Failure, Order};
use super::node::Node;
use crate::store::{StoreError, StoreErrorKind};

/// One server, or the nodes of a cluster.
#[derive(Debug)]
pub(super) enum Route {
    /// Boxed, as the other is larger.
    Node(Box<Node>),
    Cluster(Box<Cluster>),
}

impl Route {
    /// Asks a server that is about no key: in a cluster, one of the primaries.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        match self {
            Self::Node(node) => node.ask(command).await,
            Self::Cluster(cluster) => {
                let primaries = cluster.primaries().await.map_err(Failure::Connect)?;
                match primaries.first() {
                    Some((_, node)) => node.ask(command).await,
                    None => Err(Failure::Connect(no_primary())),
                }
            }
        }
    }

    /// Sends a command about `key` and waits for its reply. What it `keeps` is to survive a failover
    /// if anything is.
    pub(super) async fn send(
        &self,
        key: &str,
        command: &Cmd,
        keeps: bool,
    ) -> Result<Value, Failure> {
        let order = Order {
            key: Some(key),
            ..Order::new(command)
        };
        match self {
            Self::Node(node) => node.send(order, keeps).await,
            Self::Cluster(cluster) => cluster.send(key, order, keeps).await,
        }
    }
}

fn no_primary() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "connecting to Redis: the cluster has no primary; look at `CLUSTER INFO`",
    )
}
