//! Routing of a command to its connection.

use redis::Value;
use tokio::task::JoinSet;

use super::check::{Look, Report, Server};
use super::cluster::Cluster;
use super::link::{Failure, Order};
use super::node::{Keeping, Node};
use crate::store::pace::Crowded;
use crate::store::{Admission, RecordKey, StoreError};

/// One server, or the nodes of a cluster.
#[derive(Debug)]
pub(super) enum Route {
    /// Boxed, because the other variant is larger.
    Node(Box<Node>),
    Cluster(Box<Cluster>),
}

impl Route {
    /// Checks the server, or each primary.
    pub(super) async fn look(&self, look: &Look) -> Result<Report, StoreError> {
        let cluster = match self {
            Self::Node(node) => return Ok(Report::of_server(Server::ask(&**node, look).await?)),
            Self::Cluster(cluster) => cluster,
        };
        let mut asked = JoinSet::new();
        for (at, node) in cluster.primaries().await? {
            let look = look.clone();
            asked.spawn(async move { (at, Server::ask(&*node, &look).await) });
        }
        let mut report = Report::default();
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok((at, Ok(server))) => report.add(at, server),
                // A primary that is down now may be replaced soon: the others are there.
                Ok((at, Err(error))) if error.is_transient() => report.miss(at, error),
                Ok((at, Err(error))) => return Err(error.at(&at)),
                Err(_) => {}
            }
        }
        report.settled()
    }

    /// The time of the key's server, in microseconds, where a plain claim may use it.
    pub(super) fn server_time(&self, key: &str) -> Option<u64> {
        match self {
            Self::Node(node) => node.server_time(),
            Self::Cluster(cluster) => cluster.server_time(key),
        }
    }

    /// Why a claim of this key cannot be sent in time, if so.
    pub(super) fn crowded(&self, key: &RecordKey, admission: &Admission) -> Option<Crowded> {
        match self {
            Self::Node(node) => node.crowded(admission),
            Self::Cluster(cluster) => cluster.crowded(&key.name(), admission),
        }
    }

    /// Sends a command to the node of its key, and waits for its reply.
    pub(super) async fn send(&self, order: &Order<'_>, keeping: Keeping) -> Result<Value, Failure> {
        match self {
            Self::Node(node) => node.send(order, keeping).await,
            // A command without a key may go anywhere.
            Self::Cluster(cluster) => {
                cluster
                    .send(order.key.unwrap_or_default(), order, keeping)
                    .await
            }
        }
    }
}
