//! Certificates of a TLS connection: trusted authorities and the client's own.

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

pub(super) use crate::env::certificates::Certificates as Tls;
use crate::store::{StoreError, StoreErrorKind};

/// Adds the certificates to a connection's settings.
///
/// The client library would detect wrong ones only when it connects.
pub(super) fn apply(info: &ConnectionInfo, tls: &Tls) -> Result<ConnectionInfo, StoreError> {
    let is_default = tls.is_default();
    match info.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            return Err(refused(
                "the Redis URL ends with `#insecure`: a connection that trusts any server is no \
                 better than one without TLS; give `RedisStoreBuilder::root_certificate` the \
                 server's authority",
            ));
        }
        ConnectionAddr::TcpTls { .. } => ensure_provider(),
        _ if is_default => {}
        _ => {
            return Err(refused(
                "certificates are set, but the Redis URL does not begin with `rediss://`",
            ));
        }
    }
    if is_default {
        // A client of the application may have certificates of its own.
        return Ok(info.clone());
    }
    tls.roots().map_err(refused)?;
    if let Some(provider) = CryptoProvider::get_default() {
        tls.identity(provider).map_err(refused)?;
    }
    let certificates = TlsCertificates {
        client_tls: tls
            .client
            .clone()
            .map(|(certificate, key)| ClientTlsConfig {
                client_cert: certificate,
                client_key: key,
            }),
        root_cert: tls.root_certificate.clone(),
    };
    match Client::build_with_tls(info.clone(), certificates) {
        Ok(client) => Ok(client.get_connection_info().clone()),
        Err(_) => Err(refused(
            "the Redis client cannot use the certificates or the key",
        )),
    }
}

/// Installs a provider of cryptography for the process, before the first connection.
///
/// rustls panics in a process whose crates have several providers and which has chosen none. An earlier choice of the
/// application stays.
pub(super) fn ensure_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails if another thread has installed one meanwhile.
        drop(ring::default_provider().install_default());
    }
}

fn refused(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message)
}

#[cfg(test)]
mod tests;
