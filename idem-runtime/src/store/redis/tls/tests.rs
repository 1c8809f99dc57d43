use std::error::Error as _;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use redis::IntoConnectionInfo;

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

fn at(url: &str) -> ConnectionInfo {
    url.into_connection_info().unwrap()
}

fn rooted(pem: &[u8]) -> Tls {
    Tls {
        root_certificate: Some(pem.to_vec()),
        client: None,
    }
}

fn showing(certificate: &[u8], key: &[u8]) -> Tls {
    Tls {
        root_certificate: None,
        client: Some((certificate.to_vec(), key.to_vec())),
    }
}

/// The error for unusable certificates and keys.
fn refusal(tls: &Tls) -> String {
    let error = apply(&at("rediss://localhost"), tls).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.source().is_none(), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("c2VjcmV0"));
    error.to_string()
}

#[test]
fn the_rest_of_the_address_stays() {
    let (certificate, key) = identity();
    let tls = Tls {
        root_certificate: Some(certificate.clone()),
        client: Some((certificate, key)),
    };
    let info = at("rediss://user:word@redis.example:7000/3");
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let applied = apply(&info.set_tcp_settings(tcp), &tls).unwrap();
    assert!(applied.tcp_settings().nodelay());
    assert_eq!(applied.redis_settings().db(), 3);
    assert_eq!(applied.redis_settings().username(), Some("user"));
    assert_eq!(applied.redis_settings().password(), Some("word"));
    let ConnectionAddr::TcpTls {
        host,
        port,
        insecure,
        tls_params,
    } = applied.addr()
    else {
        panic!("{applied:?}")
    };
    assert_eq!((&**host, *port, *insecure), ("redis.example", 7000, false));
    assert!(tls_params.is_some());
}

#[test]
fn certificates_for_an_address_without_tls_are_refused() {
    let (certificate, _) = identity();
    for url in ["redis://localhost", "unix:///tmp/redis.sock"] {
        let error = apply(&at(url), &rooted(&certificate)).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        assert!(error.to_string().contains("rediss://"), "{error}");
        assert!(apply(&at(url), &Tls::default()).is_ok());
    }
}

#[test]
fn an_address_that_trusts_any_server_is_refused() {
    let error = apply(&at("rediss://localhost/#insecure"), &Tls::default()).unwrap_err();
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
    assert!(apply(&at("rediss://localhost"), &rooted(&both)).is_ok());
}

#[test]
fn debug_shows_no_key() {
    let (certificate, key) = identity();
    let debug = format!("{:?}", showing(&certificate, &key));
    assert_eq!(
        debug,
        "Certificates { root_certificate: false, client: true }"
    );
}

#[test]
fn a_provider_is_installed_afterwards() {
    ensure_provider();
    let provider = CryptoProvider::get_default().unwrap();
    ensure_provider();
    assert!(std::ptr::eq(
        &raw const **provider,
        &raw const **CryptoProvider::get_default().unwrap()
    ));
}
