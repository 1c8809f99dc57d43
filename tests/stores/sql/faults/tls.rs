//! TLS: a server's certificate, and its replacement.

use std::error::Error as _;

use idem_harness::{Certificates, MariaDbServer};
use idem_runtime::store::sql::MySqlStore;
use idem_tests::shop::assert_contains;
use mysql_async::SslOpts;

use super::prelude::*;
use crate::transactions::clients::options;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_by_mysql_async_follows_a_certificate_that_is_replaced() {
    let made = Certificates::new();
    let server = MariaDbServer::builder().tls(&made).start();
    server.execute("ALTER USER app REQUIRE SSL");
    let builder = |trusted: &Certificates| {
        let root = trusted.ca_pem().as_bytes().to_owned();
        let tls = SslOpts::default().with_root_certs(vec![root.into()]);
        let options = options(&server.password_url()).ssl_opts(tls);
        MySqlStore::builder(options).response_timeout(PATIENCE)
    };
    let untrusted = builder(&Certificates::new()).connect().await;
    assert_untrusted(untrusted, "UnknownIssuer");
    let store = builder(&made).connect().await.unwrap();
    store.migrate().await.unwrap();
    let fixture = Fixture::on(&store);
    let first = fixture.pay("a").await.unwrap();
    server.replace_certificate(&made.expired());
    // The connections of before stay.
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    server.execute("KILL USER app");
    assert_untrusted(claim(&store).await, "xpired");
    let hasty = Fixture::hasty(&store);
    assert_retryable(hasty.pay("b").await);
    server.replace_certificate(&made);
    fixture.pay("b").await.unwrap();
    assert_eq!((fixture.effects("b"), hasty.effects("b")), (1, 0));
}

/// The error names TLS, and its source the fault of the certificate.
#[track_caller]
fn assert_untrusted<T>(outcome: Result<T, StoreError>, fault: &str) {
    let error = outcome.map(drop).unwrap_err();
    assert_contains(error.source().unwrap(), fault);
    assert_says::<()>(Err(error), Unavailable, &["no TLS with the server"]);
}
