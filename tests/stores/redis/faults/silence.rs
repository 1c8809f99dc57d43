//! A server or a network that sends no replies.

use idem_runtime::store::ClaimReply;
use idem_tests::shop::{HASTE, SLACK, hasty, proxied};

use crate::prelude::*;

async fn behind_a_proxy() -> (RedisServer, TcpProxy, Shop) {
    let (server, proxy) = proxied();
    let shop = Shop::open_hasty(&proxy.url()).await;
    shop.pay("warm").await.unwrap();
    (server, proxy, shop)
}

/// Response time-out: without a reply the command is sent again.
const SOON: Duration = Duration::from_millis(250);

/// A shop with a short response time-out, and deadlines of 20 s.
async fn asking(url: &str) -> Shop {
    Shop::open_with(url, |store| store.response_timeout(SOON), persistent).await
}

/// The state: the second byte of a record.
fn state(server: &RedisServer, name: &str) -> Option<char> {
    match server.reply(&["GET", name]) {
        Reply::Bulk(record) => Some(record[1].into()),
        _ => None,
    }
}

#[tokio::test]
async fn a_black_hole_during_a_claim_ends_with_its_deadline() {
    let (_server, proxy, shop) = behind_a_proxy().await;
    proxy.black_hole(true);
    let began = Instant::now();
    let answer = shop.pay("a").await;
    let took = began.elapsed();
    assert!(took >= HASTE, "{took:?}");
    assert!(took < HASTE + SLACK, "{took:?}");
    assert_unavailable(answer);
    assert_eq!(shop.runs(), 1, "only the first call of the test ran");
    proxy.black_hole(false);
    let receipt = shop.pay("a").await.unwrap();
    assert_eq!((receipt.run, receipt.attempt), (2, 1));
}

#[tokio::test]
async fn a_claim_that_landed_unseen_is_given_back() {
    let (server, proxy, shop) = behind_a_proxy().await;
    let warm = shop.record(&server);
    // So that the server has loaded the script of a release, which is sent once only.
    let other = Shop::open(&server.url()).await;
    let down = other.pay_by("a", async |_| Err(Failure::Down)).await;
    assert_eq!(down, Err(Failure::Down));
    proxy.delay(Duration::from_mins(1));
    assert_unavailable(shop.pay("a").await);
    assert_eq!(shop.runs(), 1);
    let Reply::Array(names) = server.reply(&["KEYS", &format!("{}:*", shop.prefix())]) else {
        panic!("KEYS lists names");
    };
    let names = names.iter().map(Reply::to_string);
    let claimed = names.into_iter().find(|name| *name != warm);
    let claimed = claimed.expect("the claim has landed");
    until("it is released", || state(&server, &claimed) == Some('R')).await;
    proxy.delay(Duration::ZERO);
    proxy.cut();
    let receipt = shop.pay("a").await.unwrap();
    assert_eq!((receipt.run, receipt.attempt), (2, 1));
}

#[tokio::test]
async fn a_claim_that_lands_after_its_callers_left_ends_with_its_lease() {
    let (server, shop) = Shop::alone_and_hasty().await;
    shop.pay("warm").await.unwrap();
    server.pause();
    assert_unavailable(shop.pay("a").await);
    server.resume();
    // Claim and release waited in the server's sockets. Whichever was executed last, the key is blocked for a lease
    // at most.
    shop.advance(&server, Duration::from_mins(1));
    let receipt = shop.pay("a").await.unwrap();
    assert_eq!(receipt.run, 2);
}

#[tokio::test]
async fn a_black_hole_during_a_completion_costs_neither_answer_nor_record() {
    let (_server, proxy, shop) = behind_a_proxy().await;
    let body = async |_| {
        proxy.black_hole(true);
        Ok(())
    };
    let began = Instant::now();
    let answer = shop.pay_by("a", body).await;
    assert!(began.elapsed() < HASTE + SLACK);
    let receipt = answer.expect("the body has succeeded, and so has the call");
    assert_eq!(shop.events.count("unsaved"), 1);
    assert_eq!(shop.events.count("completed"), 1, "that of the first call");
    proxy.black_hole(false);
    happened(&shop.events, "completed", 2).await;
    assert_eq!(shop.pay("a").await, Ok(receipt));
    assert_eq!(shop.runs(), 2);
    assert_eq!(shop.events.count("unsaved"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_silent_three_times_is_replaced() {
    let (_server, proxy) = proxied();
    let shop = asking(&proxy.url()).await;
    shop.pay("warm").await.unwrap();
    let before = proxy.stats().connections;
    proxy.black_hole(true);
    let call = tokio::spawn({
        let shop = shop.clone();
        async move { shop.pay("a").await }
    });
    // Silence is the only sign that the connection is dead.
    tokio::task::block_in_place(|| proxy.wait_until(|seen| seen.connections > before));
    proxy.black_hole(false);
    let receipt = call.await.unwrap().unwrap();
    assert_eq!((receipt.run, receipt.attempt), (2, 1));
    assert_eq!(shop.pay("a").await, Ok(receipt));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_pauses_for_longer_than_a_reply_may_take_is_waited_for() {
    let (server, proxy) = proxied();
    let shop = asking(&proxy.url()).await;
    shop.pay("warm").await.unwrap();
    let before = proxy.stats().passed_bytes;
    server.pause();
    let call = tokio::spawn({
        let shop = shop.clone();
        async move { shop.pay("a").await }
    });
    // A claim has some 250 bytes; so it was sent at least three times.
    tokio::task::block_in_place(|| proxy.wait_until(|seen| seen.passed_bytes > before + 750));
    server.resume();
    let receipt = call.await.unwrap().unwrap();
    assert_eq!((receipt.run, receipt.attempt), (2, 1));
    assert_eq!(shop.pay("a").await, Ok(receipt));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_pauses_during_a_completion_stores_it_once() {
    let server = Arc::new(RedisServer::start());
    let proxy = TcpProxy::start(server.addr());
    let shop = asking(&proxy.url()).await;
    shop.pay("warm").await.unwrap();
    let before = proxy.stats().passed_bytes;
    let call = tokio::spawn({
        let (shop, server) = (shop.clone(), Arc::clone(&server));
        async move {
            let body = async |_| {
                server.pause();
                Ok(())
            };
            shop.pay_by("a", body).await
        }
    });
    // A claim, and at least three completions.
    tokio::task::block_in_place(|| proxy.wait_until(|seen| seen.passed_bytes > before + 1_000));
    server.resume();
    let receipt = call.await.unwrap().unwrap();
    assert_eq!(shop.pay("a").await, Ok(receipt));
    assert_eq!(shop.events.count("completed"), 2);
    assert_eq!(shop.runs(), 2);
}

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
    assert!(proxy.stats().connections > before, "nobody noticed");
}

#[tokio::test]
async fn no_call_outlives_its_deadline_while_a_connection_is_being_made() {
    let (_server, proxy) = proxied();
    let shop = Shop::open_with(
        &proxy.url(),
        |store| store.connect_timeout(Duration::from_mins(1)),
        hasty,
    )
    .await;
    let began = Arc::new(std::sync::Mutex::new(None));
    let running = shop.pay_by("running", async |_| {
        // The next connection is accepted, and then silent.
        proxy.black_hole(true);
        proxy.cut();
        *began.lock().unwrap() = Some(Instant::now());
        let calls = (0..5).map(|number| {
            let shop = shop.far();
            tokio::spawn(async move { shop.pay(&number.to_string()).await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_unavailable(call.await.unwrap());
        }
        Ok(())
    });
    let answer = running.await;
    let took = began.lock().unwrap().unwrap().elapsed();
    // The claims of the other calls, and then this call's completion.
    assert!(took < HASTE * 2 + SLACK, "{took:?}");
    assert!(answer.is_ok());
    assert_eq!(shop.events.count("unsaved"), 1);
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_late_reply_reaches_no_other_caller() {
    let (_server, proxy) = proxied();
    let shop = asking(&proxy.url()).await;
    let mut stored = Vec::new();
    for number in 0..20 {
        stored.push(shop.pay(&number.to_string()).await);
    }
    for round in 0..10 {
        let before = proxy.stats().connections;
        // Every other round the replies arrive after their time-out.
        let late = round % 2 == 0;
        proxy.delay(if late { SOON * 3 / 2 } else { Duration::ZERO });
        let calls = (0..20).map(|number| {
            let shop = shop.clone();
            let key = ((number + round) % 20).to_string();
            tokio::spawn(async move { shop.pay(&key).await })
        });
        let calls: Vec<_> = calls.collect();
        if late {
            // The commands are sent again, and answered twice.
            until("replies are late", || proxy.stats().connections > before).await;
            proxy.delay(Duration::ZERO);
        }
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap(), stored[(number + round) % 20]);
        }
    }
    assert_eq!(shop.runs(), 20);
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

/// The time in a reply is as old as the reply, and the retention of an answer is computed from it.
#[tokio::test]
async fn a_late_reply_does_not_date_later_claims() {
    let (server, proxy) = proxied();
    let store = RedisStore::builder(proxy.url()).response_timeout(SLACK);
    let store = store.connect().await.unwrap();
    let claim = async |number| {
        let mut request = asks(Owner::random());
        request.dated = false;
        match store.claim(&crate::key(number), &request).await.unwrap() {
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
