//! TLS connections: trusted authorities and the client's own certificate.

use std::io;
use std::sync::Arc;

use redis::ConnectionAddr;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(super) use crate::env::certificates::Certificates as Tls;
use crate::store::{StoreError, StoreErrorKind};

/// Whether an address is one over TLS.
pub(super) fn is_asked_for(address: &ConnectionAddr, tls: &Tls) -> Result<bool, StoreError> {
    match address {
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(refused(
            "the Redis URL ends with `#insecure`: a connection that trusts any server is no \
             better than one without TLS; give `RedisStoreBuilder::root_certificate` the \
             server's authority",
        )),
        ConnectionAddr::TcpTls {
            tls_params: Some(_),
            ..
        } if tls.is_default() => Err(refused(
            "the Redis client has certificates, which idem cannot read from it; give all of them to \
             `RedisStoreBuilder::root_certificate` and `client_certificate`",
        )),
        ConnectionAddr::TcpTls { .. } => Ok(true),
        _ if tls.is_default() => Ok(false),
        _ => Err(refused(
            "certificates are set, but the Redis URL does not begin with `rediss://`",
        )),
    }
}

/// The settings of TLS.
pub(super) fn config(tls: &Tls) -> Result<Arc<ClientConfig>, StoreError> {
    tls.client_config().map_err(refused)
}

/// The handshake of TLS with a server of this name.
pub(super) async fn handshake(
    config: Arc<ClientConfig>,
    host: String,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}

fn refused(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message)
}

#[cfg(test)]
mod tests;
