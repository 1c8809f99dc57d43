//! Certificates: those of the settings, and the address that they are for.

use std::error::Error as _;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use redis::{ClientTlsConfig, TlsCertificates};

use super::*;

/// A self-signed certificate and its key.
fn identity() -> (Vec<u8>, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap().pem();
    (certificate.into_bytes(), key.serialize_pem().into_bytes())
}

/// A certificate's PEM frame around other bytes.
fn not_x509() -> Vec<u8> {
    let lines = [
        "-----BEGIN CERTIFICATE-----",
        "c2VjcmV0",
        "-----END CERTIFICATE-----",
        "",
    ];
    lines.join("\n").into_bytes()
}

fn at(url: &str) -> ConnectionAddr {
    info(url).unwrap().addr().clone()
}

fn rooted(pem: &[u8]) -> Certificates {
    Certificates {
        root_certificate: Some(pem.to_vec()),
        client: None,
    }
}

fn showing(certificate: &[u8], key: &[u8]) -> Certificates {
    Certificates {
        root_certificate: None,
        client: Some((certificate.to_vec(), key.to_vec())),
    }
}

fn config(tls: &Certificates) -> Result<Arc<rustls::ClientConfig>, StoreError> {
    let options = SourceOptions {
        tls: tls.clone(),
        ..SourceOptions::default()
    };
    options.tls_config()
}

/// The error for unusable certificates and keys.
fn refusal(tls: &Certificates) -> String {
    let error = config(tls).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.source().is_none(), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("c2VjcmV0"));
    error.to_string()
}

/// Certificates of another library cannot be read, and are refused.
#[test]
fn a_client_with_certificates_needs_them_here() {
    let (certificate, key) = identity();
    let certificates = TlsCertificates {
        client_tls: Some(ClientTlsConfig {
            client_cert: certificate.clone(),
            client_key: key.clone(),
        }),
        root_cert: Some(certificate.clone()),
    };
    let client = Client::build_with_tls("rediss://localhost", certificates).unwrap();
    let address = client.get_connection_info().addr();
    let error = is_over_tls(address, &Certificates::default()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("root_certificate"), "{error}");
    assert!(is_over_tls(address, &rooted(&certificate)).unwrap());
}

#[test]
fn certificates_for_an_address_without_tls_are_refused() {
    let (certificate, _) = identity();
    for url in ["redis://localhost", "unix:///tmp/redis.sock"] {
        let error = is_over_tls(&at(url), &rooted(&certificate)).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        assert!(error.to_string().contains("rediss://"), "{error}");
        assert!(!is_over_tls(&at(url), &Certificates::default()).unwrap());
    }
}

#[test]
fn an_address_that_trusts_any_server_is_refused() {
    let insecure = at("rediss://localhost/#insecure");
    let error = is_over_tls(&insecure, &Certificates::default()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("#insecure"), "{error}");
}

#[test]
fn each_mistake_has_its_message() {
    let (certificate, key) = identity();
    let (_, other_key) = identity();
    let broken = &certificate[..certificate.len() / 2];
    for none in [b"".as_slice(), b"secret: c2VjcmV0", broken, &key] {
        let said = refusal(&rooted(none));
        assert!(said.starts_with("the root certificate is no PEM"), "{said}");
        let said = refusal(&showing(none, &key));
        assert!(
            said.starts_with("the client certificate is no PEM"),
            "{said}"
        );
    }
    for none in [
        b"".as_slice(),
        b"c2VjcmV0",
        &certificate,
        &key[..key.len() / 2],
    ] {
        let said = refusal(&showing(&certificate, none));
        assert!(said.starts_with("the client key is no PEM"), "{said}");
    }
    let said = refusal(&rooted(&not_x509()));
    assert!(
        said.starts_with("the root certificate is PEM, but"),
        "{said}"
    );
    let said = refusal(&showing(&not_x509(), &key));
    assert!(
        said.starts_with("the client certificate is PEM, but"),
        "{said}"
    );
    let said = refusal(&showing(&certificate, &other_key));
    assert!(said.starts_with("the client key does not belong"), "{said}");
    let odd = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
    let said = refusal(&showing(&certificate, odd));
    assert!(said.starts_with("the client key is of a kind"), "{said}");
}

#[test]
fn several_authorities_with_text_between_them_are_accepted() {
    let (one, _) = identity();
    let (two, _) = identity();
    let both = [b"# ours\n", &*one, b"\n# and theirs\n", &*two].concat();
    assert!(config(&rooted(&both)).is_ok());
}

#[test]
fn debug_shows_no_key() {
    let (certificate, key) = identity();
    let debug = format!("{:?}", showing(&certificate, &key));
    assert_eq!(
        debug,
        "Certificates { root_certificate: false, client: true, .. }"
    );
}
