//! A server that is absent, or is lost in the middle of a call.

use std::sync::Arc;
use std::time::Instant;

use idem_runtime::store::sql::MySqlStore;
use idem_tests::shop::{Failure, happened};

use crate::prelude::*;

/// Response time-out of an impatient store.
const SOON: Duration = Duration::from_secs(1);

on_each_database!(;
    nobody_listens,
    a_server_that_is_killed_is_waited_for,
    stale_connections_are_replaced_at_once,
    connections_that_the_server_closed_are_replaced_at_once,
    an_answer_outlives_the_server,
    a_server_that_stands_still_costs_a_deadline,
    a_black_hole_costs_a_deadline,
    connections_that_a_firewall_forgot_refuse_no_call,
    a_silent_connection_among_others_refuses_no_call,
    lost_replies_cost_nothing,
);

async fn nobody_listens<B: Server>() {
    let server = B::serve(&[]);
    let url = server.url();
    server.kill();
    let parts = ["connecting", "server runs", "URL"];
    assert_says(SqlStore::<B>::connect(&url).await, Unavailable, &parts);
    server.restart();
    open::<B>(&url).await;
}

/// Only the author of the URL can know which server the port belongs to.
#[tokio::test]
async fn another_server_listens() {
    let postgres = idem_harness::PostgresServer::start();
    let mariadb = idem_harness::MariaDbServer::start();
    let url =
        |scheme: &str, port: u16| format!("{scheme}://idem:password-marker@127.0.0.1:{port}/idem");
    let store = PostgresStore::connect(url("postgres", mariadb.port())).await;
    assert_says(store, Unavailable, &["connecting"]);
    let store = MySqlStore::connect(url("mysql", postgres.port())).await;
    assert_says(store, Unavailable, &["connecting"]);
}

async fn a_server_that_is_killed_is_waited_for<B: Server>() {
    let (server, store) = served::<B>().await;
    let fixture = Fixture::hasty(&store);
    let first = fixture.pay("a").await.unwrap();
    server.kill();
    assert_says(
        claim(&store).await,
        Unavailable,
        &["a claim", "server runs"],
    );
    assert_retryable(fixture.pay("b").await);
    // The first call has waited its whole time, and the others do not. A busy machine may delay some of them.
    let mut took = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        let error = fixture.pay("b").await.unwrap_err().refused();
        took.push(began.elapsed());
        assert!(error.is_retryable());
        let message = error.to_string();
        assert!(message.contains("server runs"), "{message}");
    }
    assert!(took.iter().any(|took| *took < HASTE / 2), "{took:?}");
    assert_eq!(fixture.effects("b"), 0);
    // A call that is retried throughout.
    let waiting = Fixture::with(&store, |engine| {
        engine.claim_deadline(Duration::from_mins(1))
    });
    let waits = tokio::spawn({
        let waiting = waiting.clone();
        async move { waiting.pay("c").await }
    });
    server.restart();
    waits.await.unwrap().unwrap();
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    fixture.pay("b").await.unwrap();
    assert_eq!(
        fixture.effects("a") + fixture.effects("b") + waiting.effects("c"),
        3
    );
}

/// Opens several connections of a store, and uses all of them.
async fn warm(fixture: &Fixture) {
    let mut tasks = JoinSet::new();
    for number in 0..32 {
        let fixture = fixture.clone();
        tasks.spawn(async move { fixture.pay(&format!("warm {number}")).await.unwrap() });
    }
    tasks.join_all().await;
}

async fn stale_connections_are_replaced_at_once<B: Server>() {
    let (server, store) = served::<B>().await;
    warm(&Fixture::on(&store)).await;
    for kill in [true, false] {
        if kill {
            server.kill();
        }
        server.restart();
        // No engine retries here.
        claim(&store).await.unwrap();
    }
    let fixture = Fixture::on(&store);
    warm(&fixture).await;
    assert_eq!(fixture.all_effects(), 0, "they are replays");
}

async fn connections_that_the_server_closed_are_replaced_at_once<B: Server>() {
    let (setting, seen) = if B::POSTGRES {
        (
            ("idle_session_timeout", "2000"),
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
             AND pid <> pg_backend_pid()",
        )
    } else {
        (
            ("wait_timeout", "2"),
            "SELECT count(*) FROM information_schema.processlist WHERE user = 'idem' \
             AND id <> connection_id()",
        )
    };
    let server = B::serve(&[setting]);
    let store = open::<B>(&server.url()).await;
    warm(&Fixture::on(&store)).await;
    for _ in 0..3 {
        until("the server has closed them", || server.execute(seen) == "0").await;
        claim(&store).await.unwrap();
    }
}

async fn an_answer_outlives_the_server<B: Server>() {
    let (server, store) = served::<B>().await;
    let fixture = Fixture::hasty(&store);
    let began = Instant::now();
    let kills = async |_| {
        server.kill();
        Ok(())
    };
    let first = fixture.pay_by("a", kills).await.unwrap();
    assert!(began.elapsed() < HASTE + SLACK, "{:?}", began.elapsed());
    assert_eq!(fixture.events.count("unsaved"), 1);
    server.restart();
    happened(&fixture.events, "completed", 1).await;
    assert_eq!(fixture.beside(&store).pay("a").await.unwrap(), first);
    assert_eq!(fixture.effects("a"), 1);
}

/// Calls until the key is free of a claim granted after its caller had left.
async fn paid_in_the_end<B: Server>(store: &SqlStore<B>, fixture: &Fixture, key: &str) -> String {
    let trying = async {
        loop {
            store.age(Duration::from_mins(1)).await.unwrap();
            match fixture.pay(key).await {
                Ok(answer) => return answer,
                Err(Failure::Idem(error)) => assert!(error.is_retryable(), "{error}"),
                Err(other) => panic!("{other:?}"),
            }
        }
    };
    patiently("the key is free", trying).await
}

fn impatient<B: Server>(store: &SqlStore<B>) -> Fixture {
    Fixture::with(store, |engine| {
        let engine = engine.claim_deadline(HASTE).complete_deadline(HASTE);
        engine.on_running(idem_runtime::OnRunning::Reject)
    })
}

async fn a_server_that_stands_still_costs_a_deadline<B: Server>() {
    let server = B::serve(&[]);
    let store = open_hasty::<B>(&server.url(), SOON, |store| store).await;
    let calm = Fixture::on(&store);
    let first = calm.pay("a").await.unwrap();
    let fixture = impatient(&store);
    server.pause();
    let began = Instant::now();
    assert_retryable(fixture.pay("b").await);
    let took = began.elapsed();
    assert!(took >= HASTE && took < HASTE + SLACK, "{took:?}");
    let parts = [
        "a claim",
        "no reply",
        "within 1s",
        "of 8 connections in use",
    ];
    assert_says(claim(&store).await, Unavailable, &parts);
    let connecting = SqlStore::<B>::builder(server.url()).response_timeout(SOON);
    assert_says(
        connecting.connect().await,
        Unavailable,
        &["connecting", "no reply"],
    );
    assert_eq!(fixture.effects("b"), 0);
    server.resume();
    paid_in_the_end(&store, &fixture, "b").await;
    assert_eq!(calm.pay("a").await.unwrap(), first);
    assert_eq!((calm.effects("a"), fixture.effects("b")), (1, 1));
}

/// One of them costs a part of a deadline, and is the only one.
async fn connections_that_a_firewall_forgot_refuse_no_call<B: Server>() {
    let server = B::serve(&[]);
    let proxy = TcpProxy::start(server.addr());
    // One statement may take as long as a call may.
    let deadline = Duration::from_secs(8);
    let url = server.url_at(proxy.addr());
    let store = open_hasty::<B>(&url, deadline, |store| store).await;
    let fixture = Fixture::with(&store, |engine| {
        engine.claim_deadline(deadline).complete_deadline(deadline)
    });
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let fixture = fixture.clone();
        tasks.spawn(async move { fixture.pay(&format!("idle {number}")).await.unwrap() });
    }
    tasks.join_all().await;
    assert!(proxy.stats().live > 4, "{:?}", proxy.stats());
    proxy.forget_live();
    fixture.pay("0").await.unwrap();
    let lost = proxy.stats().swallowed_bytes;
    assert!(lost > 0);
    for number in 1..4 {
        fixture.pay(&number.to_string()).await.unwrap();
    }
    assert_eq!(proxy.stats().swallowed_bytes, lost);
    // Nor does it cost an answer.
    let forgotten = async |_| {
        proxy.forget_live();
        Ok(())
    };
    fixture.pay_by("answer", forgotten).await.unwrap();
    assert_eq!(fixture.events.count("unsaved"), 0);
    assert_eq!(fixture.all_effects(), 64 + 5);
}

async fn a_black_hole_costs_a_deadline<B: Server>() {
    let server = B::serve(&[]);
    let proxy = TcpProxy::start(server.addr());
    let url = server.url_at(proxy.addr());
    let store = open_hasty::<B>(&url, SOON, |store| store).await;
    let calm = Fixture::on(&store);
    let first = calm.pay("a").await.unwrap();
    let fixture = impatient(&store);
    proxy.black_hole(true);
    let began = Instant::now();
    assert_retryable(fixture.pay("b").await);
    let took = began.elapsed();
    assert!(took >= HASTE && took < HASTE + SLACK, "{took:?}");
    proxy.black_hole(false);
    paid_in_the_end(&store, &fixture, "b").await;

    // And during a completion.
    let before = fixture.events.count("completed");
    let swallowed = async |_| {
        proxy.black_hole(true);
        Ok(())
    };
    let kept = fixture.pay_by("c", swallowed).await.unwrap();
    assert_eq!(fixture.events.count("unsaved"), 1);
    proxy.black_hole(false);
    happened(&fixture.events, "completed", before + 1).await;
    assert_eq!(calm.pay("c").await.unwrap(), kept);
    assert_eq!(calm.pay("a").await.unwrap(), first);
    assert_eq!((calm.all_effects(), fixture.all_effects()), (1, 2));
}

async fn lost_replies_cost_nothing<B: Server>() {
    let server = B::serve(&[]);
    let proxy = TcpProxy::start(server.addr());
    let store = open::<B>(&server.url_at(proxy.addr())).await;
    let fixture = Fixture::on(&store);
    for number in 0..10 {
        let key = number.to_string();
        // The claim was executed, and so is the completion; both replies are lost.
        proxy.drop_next_reply();
        let drops = async |_| {
            proxy.drop_next_reply();
            Ok(())
        };
        let first = fixture.pay_by(&key, drops).await.unwrap();
        proxy.cut();
        assert_eq!(fixture.pay(&key).await.unwrap(), first);
        assert_eq!(fixture.effects(&key), 1);
    }
    assert_eq!(proxy.stats().dropped_replies, 20);
}

/// Finds a statement that waits for its whole time on a connection that alone is half-open.
async fn a_silent_connection_among_others_refuses_no_call<B: Server>() {
    let server = B::serve(&[]);
    let proxy = Arc::new(TcpProxy::start(server.addr()));
    // One statement may take as long as a call may.
    let deadline = Duration::from_secs(4);
    let url = server.url_at(proxy.addr());
    let store = open_hasty::<B>(&url, deadline, |store| store).await;
    let fixture = Fixture::with(&store, |engine| {
        engine.claim_deadline(deadline).complete_deadline(deadline)
    });
    // A connection that falls silent before its first reply costs the whole time.
    warm(&fixture).await;
    let silenced = {
        let (fixture, proxy) = (fixture.clone(), Arc::clone(&proxy));
        tokio::spawn(async move {
            let forgets = async |_| {
                proxy.forget_next();
                Ok(())
            };
            fixture.pay_by("a", forgets).await.unwrap();
        })
    };
    let is_silent = Arc::clone(&proxy);
    let seen = move || is_silent.wait_until(|seen| seen.swallowed_bytes > 0);
    tokio::task::spawn_blocking(seen).await.unwrap();
    // Another connection replies.
    fixture.pay("b").await.unwrap();
    silenced.await.unwrap();
    let unsaved = fixture.events.count("unsaved");
    assert_eq!(unsaved, 0, "{:?}", fixture.events.all());
}
