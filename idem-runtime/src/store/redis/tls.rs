//! Certificates of a TLS connection: trusted authorities and the client's own.

use std::io;
use std::sync::Arc;

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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

/// Makes a TLS connection on a socket.
pub(super) async fn handshake(
    stream: TcpStream,
    host: &str,
    tls: &Tls,
) -> io::Result<TlsStream<TcpStream>> {
    let roots = match tls.roots().map_err(io::Error::other)? {
        Some(roots) => roots,
        None => system_roots()?,
    };
    let config = ClientConfig::builder().with_root_certificates(roots);
    let identity = tls.identity(config.crypto_provider());
    let config = match identity.map_err(io::Error::other)? {
        Some((chain, key)) => config.with_client_auth_cert(chain, key),
        None => Ok(config.with_no_client_auth()),
    };
    let config = config.map_err(io::Error::other)?;
    let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(host, stream).await
}

/// The authorities of the system. One of them that cannot be read is left out, as long as there are others.
fn system_roots() -> io::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        return Err(io::Error::other(format!(
            "no certificate of an authority is on this system: install them (Debian: `ca-certificates`), or give \
             `RedisStoreBuilder::root_certificate` that of the server; {}",
            why.unwrap_or_else(|| "none was found".to_owned())
        )));
    }
    Ok(roots)
}

fn refused(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message)
}

#[cfg(test)]
mod tests;
