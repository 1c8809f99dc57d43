//! TLS connections: trusted authorities and the client's own certificate.

use std::io;
use std::sync::Arc;

use redis::ConnectionAddr;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(super) use crate::env::certificates::Certificates as Tls;
use crate::store::{StoreError, StoreErrorKind};

/// The settings of TLS for an address; `None`: it is one without TLS.
pub(super) fn config(
    address: &ConnectionAddr,
    tls: &Tls,
) -> Result<Option<Arc<ClientConfig>>, StoreError> {
    match address {
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            return Err(refused(
                "the Redis URL ends with `#insecure`: a connection that trusts any server is no \
                 better than one without TLS; give `RedisStoreBuilder::root_certificate` the \
                 server's authority",
            ));
        }
        ConnectionAddr::TcpTls {
            tls_params: Some(_),
            ..
        } if tls.is_default() => {
            return Err(refused(
                "the Redis client has certificates, which idem cannot read from it; give them to \
                 `RedisStoreBuilder::root_certificate` and `client_certificate`",
            ));
        }
        ConnectionAddr::TcpTls { .. } => {}
        _ if tls.is_default() => return Ok(None),
        _ => {
            return Err(refused(
                "certificates are set, but the Redis URL does not begin with `rediss://`",
            ));
        }
    }
    // An application that has chosen a provider may be bound to it.
    let chosen = CryptoProvider::get_default().map(Arc::clone);
    let provider = chosen.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let roots = tls
        .roots()
        .map_err(refused)?
        .map_or_else(system_roots, Ok)?;
    let identity = tls.identity(&provider).map_err(refused)?;
    let unusable = |_| refused("the provider of cryptography of this process has no usable TLS");
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots);
    let config = match identity {
        Some((chain, key)) => config.with_client_auth_cert(chain, key).map_err(unusable)?,
        None => config.with_no_client_auth(),
    };
    Ok(Some(Arc::new(config)))
}

/// The authorities that the system trusts. Files that are none are passed over, as other programs do.
fn system_roots() -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(refused(
            "this system has no certificates of authorities; install them (`ca-certificates`), or \
             give `RedisStoreBuilder::root_certificate` the server's authority",
        ));
    }
    Ok(roots)
}

/// The handshake of TLS with a server of this name.
pub(super) async fn handshake(
    config: &Arc<ClientConfig>,
    host: &str,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::clone(config))
        .connect(name, stream)
        .await
}

fn refused(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message)
}

#[cfg(test)]
mod tests;
