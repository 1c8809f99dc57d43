//! Connections that break, and replies lost with them.

use std::sync::atomic::{AtomicUsize, Ordering};

use idem_tests::shop::{Receipt, assert_unreachable, proxied};

use crate::prelude::*;

/// A server that has loaded the scripts, and a shop connected to it through a proxy.
async fn behind_a_proxy() -> (RedisServer, TcpProxy, Shop) {
    let (server, proxy) = proxied();
    let shop = Shop::open(&proxy.url()).await;
    shop.pay_by("warm", async |_| Err(Failure::Down))
        .await
        .unwrap_err();
    shop.pay("warm").await.unwrap();
    (server, proxy, shop)
}

/// Panics unless the key has an answer stored once, by one body of attempt 1, and replayed.
async fn assert_answered_once(shop: &Shop, key: &str, answer: Result<Receipt, Failure>) {
    let runs = shop.runs();
    let receipt = answer.expect("the fault is not noticed");
    assert_eq!((receipt.run, receipt.attempt), (runs, 1));
    assert_eq!(shop.pay(key).await, Ok(receipt));
    assert_eq!(shop.runs(), runs);
    assert_eq!(shop.events.count("unsaved"), 0);
}

type Fault = fn(&RedisServer, &TcpProxy);

/// A first call behind these faults, one before it and one while its body runs, is answered as without them.
#[tokio::test]
async fn a_first_call_does_not_notice_a_broken_connection() {
    const NOTHING: Fault = |_, _| {};
    const FORGETS: Fault = |server, _| assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
    const LOSES: Fault = |_, proxy| proxy.drop_next_reply_to("EVALSHA");
    const LOSES_THREE: Fault = |_, proxy| (0..3).for_each(|_| proxy.drop_next_reply_to("EVALSHA"));
    const CUTS: Fault = |_, proxy| assert_eq!(proxy.cut(), 1);
    const KILLS: Fault = |server, _| {
        assert_eq!(server.cli(&["CLIENT", "KILL", "TYPE", "normal"]), "1");
    };
    const LOSES_SOURCE: Fault = |server, proxy| {
        FORGETS(server, proxy);
        proxy.drop_next_reply_to("EVAL\r\n");
    };
    let rows: [(&str, Fault, Fault, usize); 7] = [
        ("forgotten scripts", FORGETS, FORGETS, 0),
        ("a killed connection", NOTHING, KILLS, 0),
        ("a cut connection", CUTS, NOTHING, 0),
        ("a lost reply to the claim", LOSES, NOTHING, 1),
        ("a lost reply to its source", LOSES_SOURCE, NOTHING, 1),
        ("a lost reply to the completion", NOTHING, LOSES, 1),
        ("three lost replies to each", LOSES_THREE, LOSES_THREE, 6),
    ];
    for (fault, before, during, lost) in rows {
        let (server, proxy, shop) = behind_a_proxy().await;
        let completed = shop.events.count("completed");
        before(&server, &proxy);
        let answer = shop.pay_while("a", || during(&server, &proxy)).await;
        assert_eq!(proxy.stats().dropped_replies, lost, "{fault}");
        assert_answered_once(&shop, "a", answer).await;
        let stored = shop.events.count("completed") - completed;
        assert_eq!(stored, 1, "{fault}");
        assert_eq!(shop.events.count("completed value late"), 0, "{fault}");
    }
}

#[tokio::test]
async fn a_release_loads_forgotten_scripts() {
    let (server, _proxy, shop) = behind_a_proxy().await;
    server.cli(&["SCRIPT", "FLUSH"]);
    let answer = shop
        .pay_by("a", async |_| {
            server.cli(&["SCRIPT", "FLUSH"]);
            Err(Failure::Down)
        })
        .await;
    assert_eq!(answer, Err(Failure::Down));
    assert_eq!(shop.pay("a").await.unwrap().attempt, 1);
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_gives_the_key_back() {
    let (_server, proxy, shop) = behind_a_proxy().await;
    let answer = shop
        .pay_by("a", async |_| {
            proxy.drop_next_reply_to("EVALSHA");
            Err(Failure::Down)
        })
        .await;
    assert_eq!(answer, Err(Failure::Down));
    assert_eq!(proxy.stats().dropped_replies, 1);
    let answer = shop.pay("a").await;
    assert_answered_once(&shop, "a", answer).await;
}

#[tokio::test]
async fn a_replay_whose_reply_is_lost_is_asked_for_again() {
    let (_server, proxy, shop) = behind_a_proxy().await;
    let answer = shop.pay("a").await;
    proxy.drop_next_reply_to("NX");
    assert_answered_once(&shop, "a", answer).await;
    assert_eq!(proxy.stats().dropped_replies, 1);
}

#[tokio::test]
async fn replies_to_plain_claims_that_are_lost_change_nothing_twice() {
    let (_server, proxy, shop) = behind_a_proxy().await;
    // From now on the server's time is known, and a claim of a new key needs no script.
    shop.pay("warm").await.unwrap();
    for number in 0..2 {
        let (key, runs) = (format!("key {number}"), shop.runs());
        for _ in 0..=number {
            proxy.drop_next_reply_to("NX");
        }
        let answer = shop.pay(&key).await;
        assert_eq!(answer.as_ref().map(|receipt| receipt.attempt), Ok(1));
        assert_eq!(shop.runs(), runs + 1);
        assert_eq!(shop.pay(&key).await, answer);
        assert_eq!(shop.runs(), runs + 1);
    }
    assert_eq!(proxy.stats().dropped_replies, 1 + 2);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_as_the_reason() {
    let (server, shop) = Shop::alone_and_hasty().await;
    server.kill();
    assert_unreachable(server.url(), "nothing listens").await;
    // The first command detects the closed connection, the next one that no server listens.
    assert_unavailable(shop.pay("a").await);
    shop.says_unavailable("nothing listens").await;
    assert_eq!(shop.runs(), 0);
    server.restart();
    let answer = shop.pay("a").await;
    assert_answered_once(&shop, "a", answer).await;
}

#[tokio::test]
async fn an_abandoned_claim_names_its_cause() {
    let (server, shop) = Shop::alone_and_hasty().await;
    server.kill();
    let error = shop.pay("a").await.unwrap_err().refused();
    assert!(error.to_string().contains("nothing listens"), "{error}");
}

#[tokio::test]
async fn a_hundred_calls_are_no_more_to_a_server_that_is_down_than_one() {
    let (server, shop) = Shop::alone_and_hasty().await;
    shop.pay("warm").await.unwrap();
    server.kill();
    // In its place a listener that closes each connection, and counts them.
    let door = tokio::net::TcpListener::bind(server.addr()).await.unwrap();
    let knocks = Arc::new(AtomicUsize::new(0));
    let counting = tokio::spawn({
        let knocks = Arc::clone(&knocks);
        async move {
            while door.accept().await.is_ok() {
                knocks.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let began = Instant::now();
    let calls = (0..100).map(|number| {
        let shop = shop.clone();
        tokio::spawn(async move { shop.pay(&number.to_string()).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_unavailable(call.await.unwrap());
    }
    counting.abort();
    // Fifty a second, and the one that detected the loss.
    let most = usize::try_from(began.elapsed().as_millis() / 20).unwrap() + 2;
    let knocks = knocks.load(Ordering::SeqCst);
    assert!((1..=most).contains(&knocks), "{knocks}, at most {most}");
}
