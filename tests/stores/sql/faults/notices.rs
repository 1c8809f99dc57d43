//! `NOTIFY` on PostgreSQL: waiting calls are notified, and get their answer without a notification too.

use idem_runtime::clock::ManualClock;
use idem_tests::secret::ChangingSecret;
use tokio::sync::oneshot;

use crate::credentials::change;
use crate::prelude::*;

const LISTENERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";

/// The listener connects by itself, and with the credentials of its store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_changed_password_ends_no_notification() {
    let server = Postgres::serve(&[("log_statement", "all")]);
    let secret = ChangingSecret::default();
    change::<Postgres>(&server, &secret.password());
    let open = || async {
        let provider = secret.provider("app");
        open_with::<Postgres>(&server.url(), |store| {
            store.notify(true).credentials(provider)
        })
        .await
    };
    let (near, far_store) = (Fixture::on(&open().await), open().await);
    let far = listening(&near, &far_store);
    for key in ["at first", "after a change", "after another"] {
        is_told(&server, &near, &far, key).await;
        secret.change(|password| change::<Postgres>(&server, password));
        // The listener finds its connection lost.
        until("no session listens", || server.execute(LISTENERS) == "0").await;
    }
}

async fn telling(server: &Served) -> PostgresStore {
    open_with::<Postgres>(&server.url(), |store| store.notify(true)).await
}

fn reads(server: &Served) -> usize {
    let log = server.log();
    log.lines()
        .filter(|line| line.contains("execute") && line.contains(": SELECT layout"))
        .count()
}

/// A fixture whose clock stands still: a waiting call reads when notified, and never by its timer.
fn listening(near: &Fixture, store: &PostgresStore) -> Fixture {
    let clock = ManualClock::new();
    near.beside_with(store, |engine| engine.clock(clock))
}

/// A call that waits in `far` is notified of the completion in `near`.
async fn is_told(server: &Served, near: &Fixture, far: &Fixture, key: &str) {
    let (begun, has_begun) = oneshot::channel();
    let (ends, end) = oneshot::channel::<()>();
    let calls = tokio::spawn({
        let (near, key) = (near.clone(), key.to_owned());
        async move {
            let body = async |_| {
                begun.send(()).unwrap();
                end.await.unwrap();
                Ok(())
            };
            near.pay_by(&key, body).await.unwrap()
        }
    });
    has_begun.await.unwrap();
    let before = reads(server);
    let waits = tokio::spawn({
        let (far, key) = (far.clone(), key.to_owned());
        async move { far.pay(&key).await.unwrap() }
    });
    // The call is subscribed, and has read the record once more since.
    until("it waits", || reads(server) > before).await;
    ends.send(()).unwrap();
    let first = patiently("the first call ends", calls).await.unwrap();
    let second = patiently(&format!("{key}: it is told"), waits).await;
    assert_eq!(first, second.unwrap());
    assert_eq!(near.effects(key), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_calls_are_notified() {
    let server = Postgres::serve(&[("log_statement", "all")]);
    let (near, far) = (telling(&server).await, telling(&server).await);
    let near = Fixture::on(&near);
    let far_store = far;
    let far = listening(&near, &far_store);
    is_told(&server, &near, &far, "at first").await;

    // The listening session is terminated while a call waits.
    let (begun, has_begun) = oneshot::channel();
    let (ends, end) = oneshot::channel::<()>();
    let body = async |_| {
        begun.send(()).unwrap();
        end.await.unwrap();
        Ok(())
    };
    let asks = near.beside(&far_store);
    let cuts = async {
        has_begun.await.unwrap();
        let waits = tokio::spawn({
            let asks = asks.clone();
            async move { asks.pay("cut").await.unwrap() }
        });
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE query LIKE 'LISTEN%'";
        until("somebody listens", || server.execute(LISTENERS) != "0").await;
        assert_ne!(server.execute(cut), "0");
        ends.send(()).unwrap();
        patiently("it is answered all the same", waits)
            .await
            .unwrap()
    };
    let (first, second) = tokio::join!(near.pay_by("cut", body), cuts);
    assert_eq!(first.unwrap(), second);
    is_told(&server, &near, &far, "after a cut").await;

    // The engine whose thread runs the listener ends.
    let next = listening(&near, &far_store);
    is_told(&server, &near, &next, "beside another engine").await;
    drop((far, asks));
    // Its thread ends a little later; until then it notifies the waiting calls.
    until("nobody listens", || server.execute(LISTENERS) == "0").await;
    is_told(&server, &near, &next, "after the first engine").await;
    // No call has waited on the other store.
    until("one listens", || server.execute(LISTENERS) == "1").await;
}
