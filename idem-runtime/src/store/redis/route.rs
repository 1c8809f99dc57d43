//! Which connection a command goes through.

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
        let mut asked = JoinSet::new();
        for (at, node) in cluster.primaries().await? {
            let look = look.clone();
            asked.spawn(async move { (at, Server::ask(&*node, &look).await) });
        }
        let mut report = Report::default();
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok((at, Ok(server))) => report.add(at, server),
                // One that is down now may be replaced soon: the others are there.
                Ok((at, Err(error))) if error.is_transient() => report.miss(at, error),
                Ok((at, Err(error))) => return Err(error.at(&at)),
                Err(_) => {}
            }
        }
        report.settled()
    }

    /// The time of the server that has the key, in microseconds, where a claim may be granted by it.
    pub(super) fn server_time(&self, key: &str) -> Option<u64> {
        match self {
            Self::Node(node) => node.server_time(),
            Self::Cluster(cluster) => cluster.server_time(key),
        }
    }

    /// Why a claim of this key could not be sent in time, if it could not.
    pub(super) fn crowded(&self, key: &RecordKey, admission: &Admission) -> Option<Crowded> {
        match self {
            Self::Node(node) => node.crowded(admission),
            Self::Cluster(cluster) => cluster.crowded(&key.name(), admission),
        }
    }

    /// Sends a command to where its key is, and waits for its reply.
    pub(super) async fn send(&self, order: &Order<'_>, keeping: Keeping) -> Result<Value, Failure> {
        match self {
            Self::Node(node) => node.send(order, keeping).await,
            // One about no key may go anywhere.
            Self::Cluster(cluster) => {
                cluster
                    .send(order.key.unwrap_or_default(), order, keeping)
                    .await
            }
        }
    }
}
