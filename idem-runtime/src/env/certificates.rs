//! Settings of TLS connections: certificates and keys as PEM.
//!
//! Libraries accept a file without a certificate in it, and detect a wrong key only when they connect; here both are
//! refused. An error does not repeat the text that a PEM error quotes.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore};

/// Certificates and keys as PEM. The default trusts the system's authorities, and presents none.
#[derive(Clone, Default)]
pub struct Certificates {
    /// One or more authorities to trust in place of the system's.
    pub root_certificate: Option<Vec<u8>>,
    /// The client's certificate, followed by the intermediate ones, and its key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

debug_fields!(Certificates {
    root_certificate: |it| it.root_certificate.is_some(),
    client: |it| it.client.is_some()
});

/// Certificates of the client, and their key.
type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Certificates {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.root_certificate.is_none() && self.client.is_none()
    }

    /// The settings of connections.
    ///
    /// With the provider of cryptography that the application has chosen, else ring: rustls panics in a process that has
    /// chosen none and whose crates have several.
    ///
    /// # Errors
    ///
    /// A certificate or the key is none, or they do not belong together; the system has no authorities.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        let provider = CryptoProvider::get_default().map(Arc::clone);
        let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
        let roots = self.roots()?;
        let identity = self.identity(&provider)?;
        let unusable = |_| {
            "rustls cannot use the certificates, the key, or the provider of cryptography of this process".to_owned()
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(roots);
        let config = match identity {
            Some((chain, key)) => config.with_client_auth_cert(chain, key).map_err(unusable)?,
            None => config.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }

    /// The authorities to trust.
    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        let Some(pem) = &self.root_certificate else {
            // As in other programs, unreadable files are skipped.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                let problem = "this system has no certificates of authorities; install them (`ca-certificates`), or give \
                               that of the server's authority to `root_certificate`";
                return Err(problem.to_owned());
            }
            return Ok(roots);
        };
        for certificate in certificates(pem, "root")? {
            roots.add(certificate).map_err(
                |_| "the root certificate is PEM, but not one of X.509 that an authority can have",
            )?;
        }
        Ok(roots)
    }

    /// The client's certificates, the first of which belongs to the key.
    fn identity(&self, provider: &CryptoProvider) -> Result<Option<ClientIdentity>, String> {
        let Some((certificate, key)) = &self.client else {
            return Ok(None);
        };
        let chain = certificates(certificate, "client")?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            "the client key is no PEM of a private key; give the contents of a file with a line \
             `-----BEGIN PRIVATE KEY-----`, not encrypted with a password"
        })?;
        let problem = match CertifiedKey::from_der(chain.clone(), key.clone_key(), provider) {
            // Some providers cannot check whether key and certificate match.
            Ok(_) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                return Ok(Some((chain, key)));
            }
            Err(Error::InconsistentKeys(_)) => {
                "the client key does not belong to the client certificate, which must be the first of its file"
            }
            Err(Error::InvalidCertificate(_)) => {
                "the client certificate is PEM, but not one of X.509"
            }
            Err(_) => "the client key is of a kind that cannot be used; ECDSA, Ed25519 and RSA can",
        };
        Err(problem.to_owned())
    }
}

/// The certificates of a file, at least one.
fn certificates(pem: &[u8], whose: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(format!(
            "the {whose} certificate is no PEM of a certificate; give the contents of a file with \
             a line `-----BEGIN CERTIFICATE-----`"
        )),
    }
}
