//! Routing of a command to its connection.

use redis::Value;
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::durability::Keeping;
use super::failure::{Failure, is_unknown_script, is_wrong_type};
use super::link::Order;
use super::probe::{Look, Report, Server};
use super::reply::Answer;
use super::script::Script;
use super::server::Node;
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
            Self::Node(node) => return Ok(Report::of_server(Server::ask(node, look).await?)),
            Self::Cluster(cluster) => cluster,
        };
        let mut asked = JoinSet::new();
        for (at, node) in cluster.primaries().await? {
            let look = look.clone();
            asked.spawn(async move { (at, Server::ask(&node, &look).await) });
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

    /// Runs a script: by digest, and by source where the server does not know it (after a restart,
    /// a failover or `SCRIPT FLUSH`).
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` holds what it is given twice, and this future is part of every call's"
    )]
    pub(super) fn run<'a>(
        &'a self,
        what: &'a str,
        script: &'a Script,
        key: &'a str,
        arguments: &'a [&'a [u8]],
    ) -> impl Future<Output = Result<Answer, StoreError>> + use<'a> {
        async move {
            let [by_digest, by_source] =
                [false, true].map(|by_source| move || script.command(&[key], arguments, by_source));
            let order = Order {
                tells_time: script.tells_time,
                claims: script.claims,
                ..Order::about(key, &by_digest)
            };
            let mut reply = self.send(&order, script.keeping).await;
            if let Err(Failure::Reply(error)) = &reply
                && is_unknown_script(error)
            {
                let order = Order {
                    tells_time: script.tells_time,
                    claims: script.claims,
                    ..Order::about(key, &by_source)
                };
                // Boxed: seldom needed.
                reply = Box::pin(self.send(&order, script.keeping)).await;
            }
            match reply {
                Ok(value) => Answer::parse(value),
                Err(Failure::Reply(error)) if is_wrong_type(&error) => Ok(Answer::wrong_type()),
                Err(failure) => Err(failure.store_error(what)),
            }
        }
    }
}
