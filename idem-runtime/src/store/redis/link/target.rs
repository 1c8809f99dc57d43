//! Where a connection goes, and what it is made of.

use std::time::Duration;

#[cfg(feature = "redis-cluster")]
use redis::aio::ConnectionLike as _;
#[cfg(feature = "redis-manager")]
use redis::aio::ConnectionManager;
use redis::aio::MultiplexedConnection;
#[cfg(feature = "redis-cluster")]
use redis::cluster::ClusterClient;
#[cfg(feature = "redis-cluster")]
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, Value};
#[cfg(any(feature = "redis-cluster", feature = "redis-manager"))]
use redis::{RedisError, RedisResult};

#[cfg(any(feature = "redis-cluster", feature = "redis-manager"))]
use super::lane::both;
use super::lane::{Lane, Replies};
use super::{Failure, Making, replied};
use crate::store::Admission;
use crate::store::pace::Crowded;
use crate::store::redis::check::Server;
use crate::store::redis::failure::connect_error;
use crate::store::redis::sentinel::Sentinels;
use crate::store::{StoreError, StoreErrorKind};

/// Commands that may be on their way at once before a sender waits.
const PIPELINE: usize = 1_024;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct Patience {
    pub(in crate::store::redis) connect: Duration,
    pub(in crate::store::redis) response: Duration,
}

impl Patience {
    pub(in crate::store::redis) fn config(self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect))
            .set_response_timeout(Some(self.response))
            .set_pipeline_buffer_size(PIPELINE)
    }
}

/// Where a connection goes. It is looked up anew for each one.
#[derive(Clone)]
pub(in crate::store::redis) enum Target {
    /// To one server.
    Server(Box<Client>),
    /// To whichever server the sentinels call the primary.
    Primary(Sentinels),
    /// Through what the application has.
    #[cfg(feature = "redis-manager")]
    Manager(ConnectionManager),
    /// To all nodes of a cluster, by the client library's own routing.
    #[cfg(feature = "redis-cluster")]
    Library(Box<ClusterClient>),
}

impl Target {
    /// A client of the server that is to be talked to now, for connections of another kind. `None`
    /// where the application gave no such thing.
    pub(in crate::store::redis) async fn client(
        &self,
        patience: Patience,
    ) -> Result<Option<Client>, StoreError> {
        match self {
            Self::Server(client) => Ok(Some(Client::clone(client))),
            Self::Primary(sentinels) => sentinels.primary(patience).await.map(Some),
            #[cfg(feature = "redis-manager")]
            Self::Manager(_) => Ok(None),
            #[cfg(feature = "redis-cluster")]
            Self::Library(_) => Ok(None),
        }
    }

    /// Connects. `known` says that a connection was made before.
    pub(super) async fn connect(
        &self,
        patience: Patience,
        known: bool,
    ) -> Result<Wire, StoreError> {
        match self {
            Self::Server(client) => one(client, patience, known).await.map(Wire::one),
            Self::Primary(sentinels) => {
                let client = sentinels.primary(patience).await?;
                let connection = one(&client, patience, known).await?;
                is_primary(connection).await.map(Wire::one)
            }
            #[cfg(feature = "redis-manager")]
            Self::Manager(manager) => Ok(Wire::Manager(manager.clone(), patience.response)),
            #[cfg(feature = "redis-cluster")]
            Self::Library(client) => {
                let config = redis::cluster::ClusterConfig::new()
                    .set_connection_timeout(patience.connect)
                    .set_response_timeout(patience.response);
                let connecting = client.get_async_connection_with_config(config);
                let connection = within(patience.connect, connecting).await;
                let connection = connection.map_err(|error| connect_error(error, known))?;
                Ok(Wire::Library(connection, patience.response))
            }
        }
    }

    /// Sees to it that somebody hears when `generation` is to change.
    pub(super) fn tend(&self, patience: Patience) {
        if let Self::Primary(sentinels) = self {
            sentinels.listen(patience);
        }
    }

    /// Whether connections are the store's own, and lead to one server.
    pub(in crate::store::redis) fn is_ours(&self) -> bool {
        matches!(self, Self::Server(_) | Self::Primary(_))
    }

    /// Changes when a connection that was made earlier may lead to the wrong server.
    pub(in crate::store::redis) fn generation(&self) -> u64 {
        if let Self::Primary(sentinels) = self {
            sentinels.generation()
        } else {
            0
        }
    }

    /// Whether a server that refuses to write is the wrong one for certain.
    pub(super) fn is_elected(&self) -> bool {
        matches!(self, Self::Primary(_))
    }
}

async fn one(
    client: &Client,
    patience: Patience,
    known: bool,
) -> Result<MultiplexedConnection, StoreError> {
    let config = patience.config();
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    connected.await.map_err(|error| {
        let is_silence = error.is_timeout();
        let is_tls = matches!(
            client.get_connection_info().addr(),
            ConnectionAddr::TcpTls { .. }
        );
        let error = connect_error(error, known);
        if is_silence && is_tls && !known {
            // A server without TLS waits for the rest of what it takes for a command.
            return error.with_hint("if this port does not speak TLS, write `redis://`");
        }
        error
    })
}

/// The server's own word for it: sentinels may be late, and a server that is just being promoted
/// refuses to write.
async fn is_primary(
    mut connection: MultiplexedConnection,
) -> Result<MultiplexedConnection, StoreError> {
    let hello = connection.send_packed_command(&redis::cmd("HELLO")).await;
    let hello = hello.map_err(|error| connect_error(error, true))?;
    if Server::said(hello).is_replica() {
        return Err(StoreError::new(
            StoreErrorKind::Unavailable,
            "connecting to Redis: the server that the sentinels call the primary is a replica; \
             wait for the failover to finish",
        ));
    }
    Ok(connection)
}

/// A connection of any kind.
pub(super) enum Wire {
    One(Lane),
    #[cfg(feature = "redis-manager")]
    Manager(ConnectionManager, Duration),
    #[cfg(feature = "redis-cluster")]
    Library(ClusterConnection, Duration),
}

impl Wire {
    fn one(connection: MultiplexedConnection) -> Self {
        Self::One(Lane::new(connection))
    }

    /// `key` is the one that the command is about.
    #[cfg_attr(
        not(feature = "redis-cluster"),
        expect(unused_variables, reason = "one server has all keys")
    )]
    pub(super) async fn send(
        &self,
        key: Option<&str>,
        command: &Making<'_>,
        claims: bool,
    ) -> Result<Value, Failure> {
        let reply = match self {
            Self::One(lane) => lane
                .send(command, None, claims)
                .await
                .map(|reply| reply.first),
            // What the application set up may wait for ever.
            #[cfg(feature = "redis-manager")]
            Self::Manager(manager, patience) => {
                let mut manager = manager.clone();
                let command = command();
                let sent = within(*patience, manager.send_packed_command(&command));
                Box::pin(sent).await
            }
            #[cfg(feature = "redis-cluster")]
            Self::Library(connection, patience) => {
                let mut connection = connection.clone();
                let sent = connection.route_command(command(), routing(key));
                Box::pin(within(*patience, sent)).await
            }
        };
        replied(reply.map_err(Failure::Reply)?)
    }

    /// It is given up: what waits for its turn is not sent.
    pub(super) fn abandon(&self) {
        match self {
            Self::One(lane) => lane.abandon(),
            #[cfg(feature = "redis-manager")]
            Self::Manager(..) => {}
            #[cfg(feature = "redis-cluster")]
            Self::Library(..) => {}
        }
    }

    /// Why a claim could not be sent in time, if it could not. What the application set up has a queue of its
    /// own.
    pub(super) fn crowded(&self, admission: &Admission) -> Option<Crowded> {
        match self {
            Self::One(lane) => lane.crowded(admission),
            #[cfg(feature = "redis-manager")]
            Self::Manager(..) => None,
            #[cfg(feature = "redis-cluster")]
            Self::Library(..) => None,
        }
    }

    /// Sends a command to a node that is only about to get its slot.
    pub(super) async fn send_asking(&self, command: &Making<'_>) -> Result<Replies, Failure> {
        self.send_both(&|| redis::cmd("ASKING"), command).await
    }

    /// Sends two commands, one right behind the other.
    pub(super) async fn send_both(
        &self,
        first: &Making<'_>,
        second: &Making<'_>,
    ) -> Result<Replies, Failure> {
        let replies = match self {
            Self::One(lane) => lane.send(first, Some(second), false).await,
            #[cfg(feature = "redis-manager")]
            Self::Manager(manager, patience) => {
                let mut manager = manager.clone();
                let both = both(first, second);
                let sent = within(*patience, manager.send_packed_commands(&both, 0, 2));
                Box::pin(sent).await.and_then(Replies::of_both)
            }
            #[cfg(feature = "redis-cluster")]
            Self::Library(connection, patience) => {
                let mut connection = connection.clone();
                let both = both(first, second);
                let sent = within(*patience, connection.req_packed_commands(&both, 0, 2));
                Box::pin(sent).await.and_then(Replies::of_both)
            }
        };
        replies.map_err(Failure::Reply)
    }
}

/// The primary of the key's slot: the application's client may prefer replicas for reads, and an
/// answer that is not there yet looks like none.
#[cfg(feature = "redis-cluster")]
fn routing(key: Option<&str>) -> redis::cluster_routing::RoutingInfo {
    use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
    RoutingInfo::SingleNode(match key {
        Some(key) => SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master)),
        None => SingleNodeRoutingInfo::RandomPrimary,
    })
}

#[cfg(any(feature = "redis-cluster", feature = "redis-manager"))]
async fn within<T>(
    patience: Duration,
    reply: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    match tokio::time::timeout(patience, reply).await {
        Ok(reply) => reply,
        Err(_) => Err(RedisError::from(std::io::Error::from(
            std::io::ErrorKind::TimedOut,
        ))),
    }
}
