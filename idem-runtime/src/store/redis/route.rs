//! Which connection a command goes through.

use redis::{Cmd, Value};

use super::cluster::Cluster;
use super::link::{Failure, Order};
use super::node::Node;

/// One server, or the nodes of a cluster.
#[derive(Debug)]
pub(super) enum Route {
    /// Boxed, as the other is larger.
    Node(Box<Node>),
    Cluster(Box<Cluster>),
}

impl Route {
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
