//! A server that goes down and comes back.

use idem_tests::shop::patiently;

use crate::prelude::*;

/// A crash-safe server, and a shop with one answer.
async fn durable() -> (RedisServer, Shop) {
    let server = RedisServer::builder().append_only_always().start();
    let shop = Shop::open_hasty(&server.url()).await;
    shop.pay("warm").await.unwrap();
    (server, shop)
}

#[tokio::test]
async fn a_crash_keeps_claims_and_answers() {
    let (server, shop) = durable().await;
    let crash = || {
        server.kill();
        server.restart();
    };
    let done = shop.pay("a").await;
    let body = async |_| {
        crash();
        shop.pay("b").await.expect_err("the claim is held");
        Ok(())
    };
    let answer = shop.pay_by("b", body).await;
    // The claim was restored, so this was no late completion.
    assert_eq!(shop.events.count("completed value late"), 0);
    assert_eq!(shop.events.count("unsaved"), 0);
    crash();
    assert_eq!(shop.pay("a").await, done);
    assert_eq!(shop.pay("b").await, answer);
    assert_eq!(shop.runs(), 3);
}

/// A server whose snapshot takes ten seconds to load, replying `LOADING` meanwhile: longer than the deadline of a
/// hasty shop.
fn slow_to_load() -> RedisServer {
    let server = RedisServer::builder()
        .arg("--key-load-delay", "1000")
        .arg("--loading-process-events-interval-bytes", "1024")
        .start();
    let fill = "for n = 1, 5000 do redis.call('SET', 'filler:' .. n, string.rep('f', 64)) end";
    server.cli(&["EVAL", fill, "0"]);
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loading_server_is_named_and_retried() {
    let server = slow_to_load();
    let shop = Shop::open_hasty(&server.url()).await;
    let patient = Shop::open_with(
        &server.url(),
        |store| store,
        |engine| engine.claim_deadline(Duration::from_mins(1)),
    )
    .await;
    let answer = shop.pay("a").await;
    server.cli(&["SAVE"]);
    server.kill();
    // `restart` returns when the data is loaded.
    let restart = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    });
    let loading = async {
        loop {
            let (kind, message) = shop.store_says().await;
            assert_eq!(kind, StoreErrorKind::Unavailable, "{message}");
            if message.contains("loading its data") {
                return;
            }
        }
    };
    patiently("the server is up, and loads", loading).await;
    assert_unavailable(shop.pay("b").await);
    assert_eq!(patient.pay("b").await.unwrap().attempt, 1);
    let _server = restart.await.unwrap();
    assert_eq!(shop.pay("a").await, answer);
    assert_eq!((shop.runs(), patient.runs()), (1, 1));
}
