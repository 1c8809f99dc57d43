//! TLS: the certificates that the store trusts, and the one that it presents.

use idem_harness::Certificates;
use idem_runtime::OnRunning;

use crate::prelude::*;

fn trusting(url: String, made: &Certificates) -> RedisStoreBuilder {
    RedisStore::builder(url).root_certificate(made.ca_pem())
}

/// The error text of a store that must not connect.
async fn refusal(store: RedisStoreBuilder, kind: StoreErrorKind) -> String {
    let (said, message) = refused(store).await;
    assert_eq!(said, kind, "{message}");
    message
}

#[track_caller]
fn assert_says(message: &str, part: &str) {
    assert!(message.contains(part), "{part:?} is not in: {message}");
}

#[tokio::test]
async fn a_server_that_is_not_trusted_is_refused() {
    let server = RedisServer::builder().tls().start();
    let others = Certificates::new();
    for store in [
        RedisStore::builder(server.tls_url()),
        trusting(server.tls_url(), &others),
    ] {
        let message = refusal(store, StoreErrorKind::Refused).await;
        assert_says(&message, "not trusted");
        assert_says(&message, "root_certificate");
    }
}

#[tokio::test]
async fn a_client_that_is_not_trusted_is_refused() {
    let server = RedisServer::builder().tls_client_auth().start();
    let (made, others) = (server.certificates(), Certificates::new());
    let message = refusal(
        trusting(server.tls_url(), made),
        StoreErrorKind::Unavailable,
    )
    .await;
    assert_says(&message, "asks for a certificate of the client");
    let store = trusting(server.tls_url(), made);
    let store = store.client_certificate(others.client_cert_pem(), others.client_key_pem());
    let message = refusal(store, StoreErrorKind::Unavailable).await;
    assert_says(&message, "does not accept the certificate");
    // The certificate with the key of another one.
    let store = trusting(server.tls_url(), made);
    let store = store.client_certificate(made.client_cert_pem(), others.client_key_pem());
    let message = refusal(store, StoreErrorKind::Refused).await;
    assert_says(&message, "does not belong to the client certificate");
}

#[tokio::test]
async fn a_port_that_speaks_something_else_is_a_hint() {
    let server = RedisServer::builder().tls().start();
    let plain = format!("redis://{}", server.tls_addr());
    let message = refusal(RedisStore::builder(plain), StoreErrorKind::Unavailable).await;
    assert_says(&message, "if this port speaks TLS, write `rediss://`");
    let tls = format!("rediss://{}", server.addr());
    let message = refusal(
        trusting(tls, server.certificates()),
        StoreErrorKind::Unavailable,
    )
    .await;
    assert_says(
        &message,
        "if this port does not speak TLS, write `redis://`",
    );
}

#[tokio::test]
async fn certificates_without_tls_are_a_mistake() {
    let server = RedisServer::start();
    let store = trusting(server.url(), &Certificates::new());
    let message = refusal(store, StoreErrorKind::Refused).await;
    assert_says(&message, "does not begin with `rediss://`");
    let anybody = format!("rediss://{}/#insecure", server.addr());
    let message = refusal(RedisStore::builder(anybody), StoreErrorKind::Refused).await;
    assert_says(&message, "#insecure");
}

#[tokio::test]
async fn a_password_works_with_tls_and_waiting_calls_are_notified() {
    let server = RedisServer::builder().tls().password(PASSWORD).start();
    let proxy = TcpProxy::start(server.tls_addr());
    let url = server.tls_url_as("", PASSWORD);
    let url = url.replace(&server.tls_addr().to_string(), &proxy.addr().to_string());
    let root = server.certificates().ca_pem().to_owned();
    let store = move |store: RedisStoreBuilder| store.root_certificate(root);
    let patience = OnRunning::Wait(Duration::from_secs(20));
    let shop = Shop::open_with(&url, store, |engine| engine.on_running(patience)).await;
    let far = shop.far();
    let (first, second) = tokio::join!(
        shop.pay_by("a", async |_| {
            // The other call watches the key by now, on a separate connection.
            until("somebody listens", || {
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

/// A client that the application configured with certificates.
#[tokio::test]
async fn a_client_keeps_its_certificates() {
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
    let store = RedisStore::connect(client).await.unwrap();
    let shop = Shop::on(store, |engine| engine);
    let answer = shop.pay("a").await;
    assert!(answer.is_ok());
    assert_eq!(shop.pay("a").await, answer);
}
