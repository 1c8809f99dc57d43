//! Certificates of a TLS connection: trusted authorities and the client's own.

use std::fmt;

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};

use crate::store::{StoreError, StoreErrorKind};

/// Certificates and keys as PEM. The default trusts the system's authorities, and presents none.
#[derive(Clone, Default)]
pub(super) struct Tls {
    /// One or more authorities to trust in place of the system's.
    pub(super) root_certificate: Option<Vec<u8>>,
    /// The client's certificate, followed by the intermediate ones, and its key.
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("root_certificate", &self.root_certificate.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}

/// Adds the certificates to a connection's settings.
///
/// The client library would accept a file without a certificate in it, and detect a wrong
/// key only when it connects; here both are refused. The text that a PEM error quotes is not repeated.
pub(super) fn apply(info: &ConnectionInfo, tls: &Tls) -> Result<ConnectionInfo, StoreError> {
    let is_default = tls.root_certificate.is_none() && tls.client.is_none();
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
    if let Some(root) = &tls.root_certificate {
        check_root(root)?;
    }
    if let Some((certificate, key)) = &tls.client {
        check_client(certificate, key)?;
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

fn check_root(pem: &[u8]) -> Result<(), StoreError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "root")? {
        roots.add(certificate).map_err(|_| {
            refused("the root certificate is PEM, but not one of X.509 that an authority can have")
        })?;
    }
    Ok(())
}

fn check_client(certificate: &[u8], key: &[u8]) -> Result<(), StoreError> {
    let chain = certificates(certificate, "client")?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
        refused(
            "the client key is no PEM of a private key; give the contents of a file with a line \
             `-----BEGIN PRIVATE KEY-----`, not encrypted with a password",
        )
    })?;
    let Some(provider) = CryptoProvider::get_default() else {
        return Ok(());
    };
    match CertifiedKey::from_der(chain, key, provider) {
        // Some providers cannot check whether key and certificate match.
        Ok(_) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        Err(Error::InconsistentKeys(_)) => Err(refused(
            "the client key does not belong to the client certificate, which must be the first of \
             its file",
        )),
        Err(Error::InvalidCertificate(_)) => Err(refused(
            "the client certificate is PEM, but not one of X.509",
        )),
        Err(_) => Err(refused(
            "the client key is of a kind that cannot be used; ECDSA, Ed25519 and RSA can",
        )),
    }
}

/// The certificates of a file, at least one.
fn certificates(pem: &[u8], whose: &str) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(refused(format!(
            "the {whose} certificate is no PEM of a certificate; give the contents of a file with \
             a line `-----BEGIN CERTIFICATE-----`"
        ))),
    }
}

fn refused(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message)
}

#[cfg(test)]
mod tests;
