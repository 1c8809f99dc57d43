//! One server or a cluster, and the routing of commands.

use redis::Value;

use super::cluster::Cluster;
use super::failure::{Failure, is_unknown_script, is_wrong_type};
use super::link::{ReadyLink, RoutedCommand};
use super::script::{Script, ScriptReply};
use super::server::{RedisServer, WriteConcern};
use super::wire::Words;
use crate::store::pace::Crowded;
use crate::store::{Admission, RecordKey, StoreError};

/// One server, or the nodes of a cluster.
#[derive(Debug)]
pub(super) enum Topology {
    /// Boxed, because the other variant is larger.
    Single(Box<RedisServer>),
    Cluster(Box<Cluster>),
}

impl Topology {
    /// The time of the key's server in microseconds, for a plain claim.
    pub(super) fn server_time(&self, key: &str) -> Option<u64> {
        match self {
            Self::Single(server) => server.server_time(),
            Self::Cluster(cluster) => cluster.server_time(key),
        }
    }

    /// Queue of a claim that cannot be sent in time.
    pub(super) fn crowded(&self, key: &RecordKey, admission: &Admission) -> Option<Crowded> {
        match self {
            Self::Single(server) => server.crowded(admission),
            Self::Cluster(cluster) => cluster.crowded(&key.name(), admission),
        }
    }

    /// The usable connection of a command without routing and replicas, if any.
    pub(super) fn ready(&self, concern: WriteConcern) -> Option<ReadyLink<'_>> {
        match self {
            Self::Single(server) => server.direct(concern)?.ready(),
            Self::Cluster(_) => None,
        }
    }

    /// Sends a command to its key's node, and awaits the reply.
    pub(super) async fn send(
        &self,
        command: &RoutedCommand<'_>,
        concern: WriteConcern,
    ) -> Result<Value, Failure> {
        let link = match self {
            Self::Single(server) => server.direct(concern),
            Self::Cluster(_) => None,
        };
        if let Some(link) = link {
            return link.send(command).await;
        }
        // Boxed: larger than the other, whose calls would have its size.
        match self {
            Self::Single(server) => Box::pin(server.send(command, concern)).await,
            Self::Cluster(cluster) => Box::pin(cluster.send(command, concern)).await,
        }
    }

    /// Runs a script by its digest, and by source if unknown.
    ///
    /// A server forgets scripts at a restart, a failover and `SCRIPT FLUSH`.
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
    ) -> impl Future<Output = Result<ScriptReply, StoreError>> + use<'a> {
        async move {
            let reply = {
                let by_digest = |words: &mut Words<'_>| {
                    script.write(words, &[key.as_bytes()], arguments, false);
                };
                let command = script.on_key(key, &by_digest);
                self.send(&command, script.concern).await
            };
            self.replied(what, script, key, arguments, reply).await
        }
    }

    /// The reply to a script that was run by its digest. Runs it by its source where the server does not know it.
    pub(super) async fn replied(
        &self,
        what: &str,
        script: &Script,
        key: &str,
        arguments: &[&[u8]],
        reply: Result<Value, Failure>,
    ) -> Result<ScriptReply, StoreError> {
        let reply = match reply {
            // Boxed: larger, and seldom needed.
            Err(Failure::Reply(error)) if is_unknown_script(&error) => {
                Box::pin(self.run_source(script, key, arguments)).await
            }
            reply => reply,
        };
        match reply {
            Ok(value) => ScriptReply::parse(value),
            Err(Failure::Reply(error)) if is_wrong_type(&error) => Ok(ScriptReply::wrong_type()),
            Err(failure) => Err(failure.store_error(what)),
        }
    }

    async fn run_source(
        &self,
        script: &Script,
        key: &str,
        arguments: &[&[u8]],
    ) -> Result<Value, Failure> {
        let by_source = |words: &mut Words<'_>| {
            script.write(words, &[key.as_bytes()], arguments, true);
        };
        let command = script.on_key(key, &by_source);
        self.send(&command, script.concern).await
    }
}
