//! A certificate authority for tests, and its certificates.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// A new authority with certificates for clients and servers. Those of servers are for 127.0.0.1 and `localhost`.
/// Clones share them.
///
/// Certificates of different values do not trust each other: `Certificates::new()` is how a test gets wrong ones.
#[derive(Clone)]
pub struct Certificates {
    ca: String,
    server: Identity,
    expired: Identity,
    client: Identity,
}

/// A certificate with its key, as PEM.
#[derive(Clone)]
struct Identity {
    cert: String,
    key: String,
}

/// Hides the keys from the output of a failed test.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Certificates {
    /// Generates the certificates, in a few milliseconds.
    #[expect(clippy::new_without_default, reason = "each value is another one")]
    pub fn new() -> Self {
        Self::make().expect("what is signed here can be signed")
    }

    pub fn ca_pem(&self) -> &str {
        &self.ca
    }

    /// The same ones, of which that of the server has expired.
    #[must_use]
    pub fn expired(&self) -> Self {
        Self {
            server: self.expired.clone(),
            ..self.clone()
        }
    }

    pub fn client_cert_pem(&self) -> &str {
        &self.client.cert
    }

    pub fn client_key_pem(&self) -> &str {
        &self.client.key
    }

    /// Writes the server's files into a directory. Returns a Redis's settings that name them.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut settings = Vec::new();
        for (setting, file, pem) in [
            ("--tls-ca-cert-file", "ca.pem", &self.ca),
            ("--tls-cert-file", "server.pem", &self.server.cert),
            ("--tls-key-file", "server.key", &self.server.key),
        ] {
            let path = dir.join(file);
            fs::write(&path, pem)?;
            // Postgres refuses a key that others may read.
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            settings.extend([setting.to_owned(), path.display().to_string()]);
        }
        Ok(settings)
    }

    fn make() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        // A unique name: two authorities of one name would differ in their signatures only, and a client
        // would report a bad signature instead of an unknown authority.
        let name = format!("idem test authority {:02x?}", &key.public_key_raw()[1..9]);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        let mut server =
            CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        // A server is a client of other servers too: as a replica, and in a cluster.
        server.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let mut expired = server.clone();
        expired.not_after = date_time_ymd(2020, 1, 1);
        let mut client = CertificateParams::default();
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(Self {
            ca,
            server: signed(&issuer, "idem test server", server)?,
            expired: signed(&issuer, "idem test server", expired)?,
            client: signed(&issuer, "idem test client", client)?,
        })
    }
}

fn signed(
    issuer: &Issuer<'_, KeyPair>,
    name: &str,
    mut params: CertificateParams,
) -> Result<Identity, rcgen::Error> {
    let key = KeyPair::generate()?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(Identity {
        cert: params.signed_by(&key, issuer)?.pem(),
        key: key.serialize_pem(),
    })
}
