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

fn builder<B: Server>(
    server: &Served,
    provider: impl Into<CredentialsProvider>,
) -> SqlStoreBuilder<B> {
    let url = server.url_as("nobody", "");
    let store = SqlStore::builder(url).response_timeout(Duration::from_secs(20));
    B::provided(store, provider.into())
}

async fn with_secret<B: Server>() -> (Arc<Served>, ChangingSecret, SqlStore<B>) {
    let (server, secret) = (Arc::new(B::serve(&[])), ChangingSecret::default());
    change::<B>(&server, &secret.password());
    let store = builder(&server, secret.provider("app"))
        .connect()
        .await
        .unwrap();
    store.migrate().await.unwrap();
    (server, secret, store)
}

/// Without the provider, the server refuses each new connection until the process is restarted.
async fn a_changed_password_refuses_no_call<B: Server>() {
    let (server, secret, store) = with_secret::<B>().await;
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

/// A server knows a password sooner than the provider, or later: its refusal is no lasting one.
async fn a_refused_password_is_waited_for<B: Server>() {
    let (server, secret, store) = with_secret::<B>().await;
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
    // The first connection finds a wrong password, and not one that changes.
    let wrong =
        || async { Ok::<_, std::io::Error>(Credentials::new("password-marker").user("app")) };
    let store = builder::<B>(&server, wrong).connect().await;
    assert_says(store, Refused, &["connecting", "password"]);
}

/// Its own error is the source, and a provider that never returns leaves time for the connection.
async fn a_provider_that_fails_is_reported<B: Server>() {
    let server = B::serve(&[]);
    let fails = || async { Err::<Credentials, _>(std::io::Error::other("the vault is sealed")) };
    let failure = builder::<B>(&server, fails).connect().await.unwrap_err();
    let source = std::error::Error::source(&failure).unwrap();
    assert_contains(source, "the vault is sealed");
    assert_says::<()>(
        Err(failure),
        Unavailable,
        &["connecting", "provider of credentials failed"],
    );
    let hangs = || pending::<Result<Credentials, std::io::Error>>();
    let store = builder::<B>(&server, hangs).response_timeout(Duration::from_millis(200));
    let parts = [
        "connecting",
        "provider of credentials returned none within 100ms",
    ];
    assert_says(store.connect().await, Unavailable, &parts);
}
