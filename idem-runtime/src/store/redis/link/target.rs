//! Target of a connection.

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr};

use crate::store::redis::failure::connect_error;
use crate::store::redis::sentinel::Sentinels;
use crate::store::redis::timeouts::Patience;
use crate::store::redis::value::text_pairs;
use crate::store::{StoreError, StoreErrorKind};

/// Target of a connection, resolved anew for each one.
#[derive(Clone)]
pub(crate) enum Target {
    /// One server.
    Server(Box<Client>),
    /// The server that the sentinels name as the primary.
    Primary(Sentinels),
}

impl Target {
    /// A client of the current server, for connections that subscribe.
    pub(crate) async fn client(&self, patience: Patience) -> Result<Client, StoreError> {
        match self {
            Self::Server(client) => Ok(Client::clone(client)),
            Self::Primary(sentinels) => sentinels.primary(patience).await,
        }
    }

    /// Connects. `known`: an earlier attempt succeeded.
    pub(super) async fn connect(
        &self,
        patience: Patience,
        known: bool,
    ) -> Result<MultiplexedConnection, StoreError> {
        match self {
            Self::Server(client) => one(client, patience, known).await,
            Self::Primary(sentinels) => {
                let client = sentinels.primary(patience).await?;
                let connection = one(&client, patience, known).await?;
                is_primary(connection).await
            }
        }
    }

    /// Starts the listeners of the sentinels unless they run. They change `generation` on a failover.
    pub(super) fn tend(&self, patience: Patience) {
        if let Self::Primary(sentinels) = self {
            sentinels.listen(patience);
        }
    }

    /// Changes when a connection that was made earlier may lead to the wrong server.
    pub(crate) fn generation(&self) -> u64 {
        if let Self::Primary(sentinels) = self {
            sentinels.generation()
        } else {
            0
        }
    }

    /// Whether a server that refuses to write is certainly the wrong one.
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
            // A server without TLS waits for the rest of the bytes that it takes for a command.
            return error.with_hint("if this port does not speak TLS, write `redis://`");
        }
        error
    })
}

/// Checks the role that the server itself reports: sentinels may be late, and a server that is still being
/// promoted refuses to write.
async fn is_primary(
    mut connection: MultiplexedConnection,
) -> Result<MultiplexedConnection, StoreError> {
    let hello = connection.send_packed_command(&redis::cmd("HELLO")).await;
    let hello = hello.map_err(|error| connect_error(error, true))?;
    if text_pairs(hello).any(|(name, value)| name == "role" && value == "replica") {
        return Err(StoreError::new(
            StoreErrorKind::Unavailable,
            "connecting to Redis: the server that the sentinels call the primary is a replica; \
             wait for the failover to finish",
        ));
    }
    Ok(connection)
}
