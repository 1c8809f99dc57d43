//! The server that a connection is made to.

use redis::ConnectionAddr;

use crate::store::redis::address::place;
use crate::store::redis::connect::connect;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::failure::connect_error;
use crate::store::redis::limits::Limits;
use crate::store::redis::sentinel::Sentinels;
use crate::store::redis::value::text_pairs;
use crate::store::redis::wire::Wire;
use crate::store::{StoreError, StoreErrorKind};

/// The server that a connection is made to, resolved anew for each connection.
#[derive(Clone)]
pub(crate) enum Target {
    /// One server.
    Server(Box<Endpoint>),
    /// The server that the sentinels name as the primary.
    Primary(Sentinels),
}

impl Target {
    /// The current server, for subscriptions.
    pub(crate) async fn endpoint(&self, limits: Limits) -> Result<Endpoint, StoreError> {
        match self {
            Self::Server(endpoint) => Ok(Endpoint::clone(endpoint)),
            Self::Primary(sentinels) => sentinels.primary(limits).await,
        }
    }

    /// Connects. `known`: an earlier attempt succeeded.
    pub(super) async fn connect(&self, limits: Limits, known: bool) -> Result<Wire, StoreError> {
        match self {
            Self::Server(endpoint) => one(endpoint, limits, known).await,
            Self::Primary(sentinels) => {
                let endpoint = sentinels.primary(limits).await?;
                let wire = one(&endpoint, limits, known).await?;
                is_primary(&endpoint, wire).await
            }
        }
    }

    /// Starts the failover listeners, unless they run. They change `generation` on a failover.
    pub(super) fn listen_for_failovers(&self, limits: Limits) {
        if let Self::Primary(sentinels) = self {
            sentinels.listen(limits);
        }
    }

    /// Changes when an earlier connection may lead to the wrong server.
    pub(crate) fn generation(&self) -> u64 {
        if let Self::Primary(sentinels) = self {
            sentinels.generation()
        } else {
            0
        }
    }

    /// The place of the server, for a message.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Server(endpoint) => place(endpoint),
            Self::Primary(_) => "the address that the sentinels name".to_owned(),
        }
    }

    /// Whether credentials that are refused may be followed by others.
    pub(crate) fn changes_credentials(&self) -> bool {
        match self {
            Self::Server(endpoint) => endpoint.changes(),
            Self::Primary(sentinels) => sentinels.server().changes(),
        }
    }

    /// Whether a replica is certainly the wrong server.
    pub(super) fn is_elected(&self) -> bool {
        matches!(self, Self::Primary(_))
    }
}

async fn one(endpoint: &Endpoint, limits: Limits, known: bool) -> Result<Wire, StoreError> {
    let known = known || endpoint.was_accepted();
    let connected = connect(endpoint, limits, None).await?;
    connected.map_err(|error| {
        let is_silence = error.is_timeout();
        let is_tls = matches!(
            endpoint.get_connection_info().addr(),
            ConnectionAddr::TcpTls { .. }
        );
        let error = connect_error(&place(endpoint), error, known);
        if is_silence && is_tls && !known {
            // A server without TLS takes the handshake for the start of a command, and waits for the rest.
            return error.with_hint("if this port does not speak TLS, write `redis://`");
        }
        error
    })
}

/// Checks the role that the server itself reports.
///
/// Sentinels may be late, and a server that is still being promoted refuses to write.
async fn is_primary(endpoint: &Endpoint, wire: Wire) -> Result<Wire, StoreError> {
    let hello = wire.send(&|words| words.command(&[&[b"HELLO"]]), None, false);
    let hello = hello.await.and_then(|hello| hello.first.extract_error());
    let at = place(endpoint);
    let hello = hello.map_err(|error| connect_error(&at, error, true))?;
    if text_pairs(hello).any(|(name, value)| name == "role" && value == "replica") {
        return Err(StoreError::new(
            StoreErrorKind::Unavailable,
            format!(
                "connecting to Redis at {at}: the server that the sentinels call the primary is a replica; \
                 wait for the failover to finish"
            ),
        ));
    }
    Ok(wire)
}
