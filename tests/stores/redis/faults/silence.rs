//! A server or a network that sends no replies.

use idem_harness::HANG_LIMIT;
use idem_runtime::store::author::ClaimReply;
use idem_tests::claims::unhurried;
use idem_tests::shop::{HASTE, PATIENCE, hasty, patiently, proxied};

use crate::prelude::*;

#[tokio::test]
async fn a_connection_that_is_silent_for_hasty_callers_is_replaced_as_well() {
    let (_server, proxy) = proxied();
    let shop = Shop::open_with(
        &proxy.url(),
        |store| store.response_timeout(HASTE * 10),
        |engine| engine.claim_deadline(HASTE / 2),
    )
    .await;
    shop.pay("warm").await.unwrap();
    let before = proxy.stats().connections;
    proxy.black_hole(true);
    for _ in 0..4 {
        assert_unavailable(shop.pay("a").await);
    }
    assert!(proxy.stats().connections > before);
}

#[tokio::test]
async fn no_call_outlives_its_deadline_while_a_connection_is_being_made() {
    let (_server, proxy) = proxied();
    let shop = Shop::open_with(
        &proxy.url(),
        |store| store.connect_timeout(HANG_LIMIT * 2),
        hasty,
    )
    .await;
    let running = shop.pay_by("running", async |_| {
        // The next connection is accepted, and then silent.
        proxy.black_hole(true);
        proxy.cut();
        let calls = (0..5).map(|number| {
            let shop = shop.far();
            tokio::spawn(async move { shop.pay(&number.to_string()).await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_unavailable(call.await.unwrap());
        }
        Ok(())
    });
    // The claims of the other calls, and then this call's completion.
    assert!(patiently("the deadlines", running).await.is_ok());
    assert_eq!(shop.events.count("unsaved"), 1);
    assert_eq!(shop.runs(), 1);
}

/// A server that replies to the handshake, and then hangs.
fn half_a_server() -> std::net::SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut bytes = [0; 1_024];
        while let Ok(1..) = client.read(&mut bytes) {
            if bytes.windows(5).any(|word| word == b"HELLO") {
                bytes.fill(0);
                let hello = b"*2\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n";
                client.write_all(hello).unwrap();
            }
        }
    });
    addr
}

#[tokio::test]
async fn a_server_that_does_not_say_whether_it_evicts_is_no_store() {
    let url = format!("redis://{}", half_a_server());
    let store = RedisStore::builder(&url).response_timeout(HASTE);
    let error = store.connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("about itself"), "{error}");
}

/// Retention is computed from the time in a reply, which has aged.
#[tokio::test]
async fn a_late_reply_does_not_date_later_claims() {
    let (server, proxy) = proxied();
    let store = RedisStore::builder(proxy.url()).response_timeout(PATIENCE);
    let store = store.connect().await.unwrap();
    let claim = async |number| {
        let mut request = asks(Owner::random());
        request.dated = false;
        match store
            .claim(&crate::key(number), &request, &unhurried())
            .await
            .unwrap()
        {
            ClaimReply::Granted { fence, .. } => fence.get(),
            other => panic!("{other:?}"),
        }
    };
    proxy.delay(Duration::from_secs(2));
    claim(0).await;
    proxy.delay(Duration::ZERO);
    let time = server.cli(&["TIME"]);
    let (seconds, _) = time.split_once('\n').unwrap();
    let now = seconds.trim().parse::<u64>().unwrap() * 1_000_000;
    let fence = claim(1).await;
    assert!(fence >= now, "{} ms behind", (now - fence) / 1_000);
}
