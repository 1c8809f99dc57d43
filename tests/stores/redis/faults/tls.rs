//! TLS: the certificates that the store trusts, and its own.

use idem_harness::Certificates;
use idem_runtime::OnRunning;
use idem_tests::shop::{PATIENCE, assert_no_store};

use crate::prelude::*;

fn trusting(url: String, made: &Certificates) -> RedisStoreBuilder {
    RedisStore::builder(url).root_certificate(made.ca_pem())
}

#[tokio::test]
async fn a_server_or_a_client_that_is_not_trusted_is_refused() {
    use StoreErrorKind::{Refused, Unavailable};
    let server = RedisServer::builder().tls().start();
    let strict = RedisServer::builder().tls_client_auth().start();
    let (made, others) = (strict.certificates(), Certificates::new());
    let presents = |cert, key| trusting(strict.tls_url(), made).client_certificate(cert, key);
    let plain = format!("redis://{}", server.tls_addr());
    let tls = format!("rediss://{}", server.addr());
    for (store, kind, part) in [
        (
            RedisStore::builder(server.tls_url()),
            Refused,
            "not trusted",
        ),
        (
            trusting(server.tls_url(), &others),
            Refused,
            "root_certificate",
        ),
        (
            trusting(strict.tls_url(), made),
            Unavailable,
            "asks for a certificate of the client",
        ),
        (
            presents(others.client_cert_pem(), others.client_key_pem()),
            Unavailable,
            "does not accept the certificate",
        ),
        (
            presents(made.client_cert_pem(), others.client_key_pem()),
            Refused,
            "does not belong to the client certificate",
        ),
        (
            RedisStore::builder(plain),
            Unavailable,
            "if this port speaks TLS, write `rediss://`",
        ),
        (
            trusting(tls, server.certificates()),
            Unavailable,
            "if this port does not speak TLS, write `redis://`",
        ),
    ] {
        assert_no_store(store, kind, part).await;
    }
}

#[tokio::test]
async fn a_password_works_with_tls_and_waiting_calls_are_notified() {
    let server = RedisServer::builder().tls().password(PASSWORD).start();
    let proxy = TcpProxy::start(server.tls_addr());
    let url = server.tls_url_as("", PASSWORD);
    let url = url.replace(&server.tls_addr().to_string(), &proxy.addr().to_string());
    let root = server.certificates().ca_pem().to_owned();
    let store = move |store| patient(store).root_certificate(root);
    let patience = OnRunning::Wait(PATIENCE);
    let shop = Shop::open_with(&url, store, |engine| engine.on_running(patience)).await;
    let far = shop.far();
    let (first, second) = tokio::join!(
        shop.pay_by("a", async |_| {
            // The other call watches the key by now, on a separate connection.
            until("it is subscribed", || {
                let told = server.cli(&["PUBSUB", "CHANNELS", "*"]);
                told.contains(shop.prefix())
            })
            .await;
            Ok(())
        }),
        far.pay("a"),
    );
    assert_eq!(first, second);
    assert_eq!(shop.runs(), 1);
    // Reconnecting works as without TLS.
    proxy.cut();
    assert_eq!(shop.pay("a").await, first);
    let again = shop.pay_while("b", || proxy.cut());
    assert!(again.await.is_ok());
    assert_eq!(shop.events.count("unsaved"), 0);
}

/// A client with certificates that only its own library can read.
#[tokio::test]
async fn a_client_with_certificates_connects_with_those_of_the_store() {
    let server = RedisServer::builder().tls_client_auth().start();
    let made = server.certificates();
    let certificates = redis::TlsCertificates {
        client_tls: Some(redis::ClientTlsConfig {
            client_cert: made.client_cert_pem().into(),
            client_key: made.client_key_pem().into(),
        }),
        root_cert: Some(made.ca_pem().into()),
    };
    let client = redis::Client::build_with_tls(server.tls_url(), certificates).unwrap();
    let store = RedisStore::builder(client);
    let kind = StoreErrorKind::Refused;
    assert_no_store(store.clone(), kind, "`client_certificate`").await;
    let store = patient(store.root_certificate(made.ca_pem()))
        .client_certificate(made.client_cert_pem(), made.client_key_pem());
    let shop = Shop::on(store.connect().await.unwrap(), |engine| engine);
    let answer = shop.pay("a").await;
    assert!(answer.is_ok());
    assert_eq!(shop.pay("a").await, answer);
}
