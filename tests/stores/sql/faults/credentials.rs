//! A password that changes, and its provider.

use std::future::pending;

use idem_runtime::credentials::{Credentials, CredentialsProvider};
use idem_tests::secret::ChangingSecret;
use idem_tests::shop::{assert_contains, assert_no_marker};

use super::prelude::*;

on_each_server!(
    a_changed_password_refuses_no_call,
    a_refused_password_is_waited_for,
    a_provider_that_fails_is_reported,
);

/// Gives the user `app` another password, and ends its connections.
pub(crate) fn change<B: Server>(server: &Served, password: &str) {
    server.execute(&if B::POSTGRES {
        format!(
            "ALTER ROLE app PASSWORD '{password}'; \
             SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'"
        )
    } else {
        format!("ALTER USER app IDENTIFIED BY '{password}'; KILL USER app")
    });
}

/// A store of this URL.
type Source<B> = fn(&str) -> SqlStoreBuilder<B>;

fn builder<B: Server>(
    source: Source<B>,
    server: &Served,
    provider: impl Into<CredentialsProvider>,
) -> SqlStoreBuilder<B> {
    let store = source(&server.url_as("nobody", "")).response_timeout(Duration::from_secs(20));
    B::provided(store, provider.into())
}

async fn with_secret<B: Server>(source: Source<B>) -> (Arc<Served>, ChangingSecret, SqlStore<B>) {
    let (server, secret) = (Arc::new(B::serve(&[])), ChangingSecret::default());
    change::<B>(&server, &secret.password());
    let store = builder(source, &server, secret.provider("app"));
    let store = store.connect().await.unwrap();
    store.migrate().await.unwrap();
    (server, secret, store)
}

async fn a_changed_password_refuses_no_call<B: Server>() {
    assert_refuses_no_call::<B>(|url| SqlStore::builder(url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_refuses_no_call_by_tokio_postgres() {
    assert_refuses_no_call::<Postgres>(by_tokio_postgres).await;
}

fn by_tokio_postgres(url: &str) -> SqlStoreBuilder<Postgres> {
    let config: tokio_postgres::Config = url.parse().unwrap();
    SqlStore::builder(config)
}

/// Without the provider, the server refuses new connections until a restart.
async fn assert_refuses_no_call<B: Server>(source: Source<B>) {
    let (server, secret, store) = with_secret(source).await;
    let fixture = Fixture::on(&store);
    let on_server = {
        let server = Arc::clone(&server);
        move |password: &str| change::<B>(&server, password)
    };
    let calls = |number: usize| {
        let fixture = fixture.clone();
        async move { drop(fixture.pay(&number.to_string()).await.unwrap()) }
    };
    let changes = secret.change_under_load(on_server, calls).await;
    assert_eq!(fixture.all_effects(), 200);
    assert!(secret.provided() > changes, "{}", secret.provided());
    assert_no_marker(&format!("{store:?} {:?}", fixture.events.all()));
}

async fn a_refused_password_is_waited_for<B: Server>() {
    assert_waits_for_a_password::<B>(|url| SqlStore::builder(url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_password_is_waited_for_by_tokio_postgres() {
    assert_waits_for_a_password::<Postgres>(by_tokio_postgres).await;
}

/// A server knows a password sooner than the provider, or later: its refusal is no lasting one.
async fn assert_waits_for_a_password<B: Server>(source: Source<B>) {
    let (server, secret, store) = with_secret(source).await;
    let before = secret.provided();
    change::<B>(&server, "password-marker of the server alone");
    let parts = ["a claim", "credentials of the provider"];
    assert_says(claim(&store).await, Unavailable, &parts);
    let refused = secret.provided();
    // The claim connects, and so does the read of its record, each twice.
    assert_eq!(refused, before + 4);
    let fixture = Fixture::on(&store);
    let waits = fixture.pay("a");
    let changes = async {
        until("it has asked again", || secret.provided() > refused + 1).await;
        change::<B>(&server, &secret.password());
    };
    let (answer, ()) = tokio::join!(waits, changes);
    answer.unwrap();
    // The first connection finds a wrong password, not a changing one.
    let wrong =
        || async { Ok::<_, std::io::Error>(Credentials::new("password-marker").user("app")) };
    let store = builder(source, &server, wrong).connect().await;
    assert_says(store, Refused, &["connecting", "password"]);
}

/// Its own error is the source. A provider that never returns leaves time for the connection.
async fn a_provider_that_fails_is_reported<B: Server>() {
    let server = B::serve(&[]);
    let fails = || async { Err::<Credentials, _>(std::io::Error::other("the vault is sealed")) };
    let failure = builder::<B>(|url| SqlStore::builder(url), &server, fails)
        .connect()
        .await
        .unwrap_err();
    let source = std::error::Error::source(&failure).unwrap();
    assert_contains(source, "the vault is sealed");
    assert_says::<()>(
        Err(failure),
        Unavailable,
        &["connecting", "provider of credentials failed"],
    );
    let hangs = || pending::<Result<Credentials, std::io::Error>>();
    let store = builder::<B>(|url| SqlStore::builder(url), &server, hangs)
        .response_timeout(Duration::from_millis(200));
    let parts = [
        "connecting",
        "provider of credentials returned none within 100ms",
    ];
    assert_says(store.connect().await, Unavailable, &parts);
}
