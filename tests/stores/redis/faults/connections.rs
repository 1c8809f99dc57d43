//! Broken connections, their lost replies, and the number of new connections.

use std::sync::atomic::{AtomicU64, Ordering};

use idem_harness::SentinelSetup;
use idem_tests::sentinel_url;
use idem_tests::shop::proxied;

use crate::prelude::*;

type Fault = fn(&RedisServer, &TcpProxy);

const NOTHING: Fault = |_, _| {};
const FORGETS: Fault = |server, _| assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
const LOSES: Fault = |_, proxy| proxy.drop_next_reply_to("EVALSHA");
const LOSES_THREE: Fault = |_, proxy| (0..3).for_each(|_| proxy.drop_next_reply_to("EVALSHA"));
const LOSES_PLAIN: Fault = |_, proxy| proxy.drop_next_reply_to("NX");
const CUTS: Fault = |_, proxy| assert_eq!(proxy.cut(), 1);
const KILLS: Fault = |server, _| {
    assert_eq!(server.cli(&["CLIENT", "KILL", "TYPE", "normal"]), "1");
};
const LOSES_SOURCE: Fault = |server, proxy| {
    FORGETS(server, proxy);
    proxy.drop_next_reply_to("EVAL\r\n");
};

/// Calls before, during and behind these faults end as without them; so do their replays.
#[tokio::test]
async fn a_call_does_not_notice_a_broken_connection() {
    let rows: [(&str, Fault, Fault, bool, usize); 10] = [
        ("forgotten scripts", FORGETS, FORGETS, true, 0),
        ("a killed connection", NOTHING, KILLS, true, 0),
        ("a cut connection", CUTS, NOTHING, true, 0),
        ("a lost reply to the claim", LOSES, NOTHING, true, 1),
        ("a lost reply to its source", LOSES_SOURCE, NOTHING, true, 1),
        ("a lost reply to the completion", NOTHING, LOSES, true, 1),
        ("three lost of each", LOSES_THREE, LOSES_THREE, true, 6),
        ("a lost plain reply", LOSES_PLAIN, NOTHING, true, 1),
        ("scripts of a release", FORGETS, FORGETS, false, 0),
        ("a lost reply to the release", NOTHING, LOSES, false, 1),
    ];
    for (fault, before, during, succeeds, lost) in rows {
        let (server, proxy) = proxied();
        let shop = Shop::open(&proxy.url()).await;
        let warm = shop.pay_by("warm", async |_| Err(Failure::Down)).await;
        assert_eq!(warm, Err(Failure::Down));
        shop.pay("warm").await.unwrap();
        if fault.contains("plain") {
            // From now on the server's time is known, and a claim of a new key needs no script.
            shop.pay("warm").await.unwrap();
        }
        let completed = shop.events.count("completed");
        before(&server, &proxy);
        let body = async |_| {
            during(&server, &proxy);
            if succeeds { Ok(()) } else { Err(Failure::Down) }
        };
        let mut answer = shop.pay_by("a", body).await;
        assert_eq!(answer.is_ok(), succeeds, "{fault}: {answer:?}");
        assert_eq!(proxy.stats().dropped_replies, lost, "{fault}");
        if !succeeds {
            assert_eq!(answer, Err(Failure::Down), "{fault}");
            answer = shop.pay("a").await;
        }
        let (receipt, runs) = (answer.unwrap(), shop.runs());
        assert_eq!((receipt.run, receipt.attempt), (runs, 1), "{fault}");
        assert_eq!(shop.pay("a").await, Ok(receipt.clone()), "{fault}");
        // The server's time is known by now, and a replay needs no script.
        proxy.drop_next_reply_to("NX");
        assert_eq!(shop.pay("a").await, Ok(receipt), "{fault}");
        assert_eq!(proxy.stats().dropped_replies, lost + 1, "{fault}");
        assert_eq!(shop.runs(), runs, "{fault}");
        assert_eq!(shop.events.count("completed") - completed, 1, "{fault}");
        for never in ["completed value late", "unsaved"] {
            assert_eq!(shop.events.count(never), 0, "{fault}");
        }
    }
}

/// Two hundred failing calls connect no more often than a few: they share the pauses between attempts.
async fn is_not_flooded(shop: &Shop, connections: impl Fn() -> u64) {
    const CALLS: u64 = 200;
    let before = connections();
    let calls = (0..CALLS).map(|number| {
        let shop = shop.clone();
        tokio::spawn(async move { shop.pay(&number.to_string()).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_unavailable(call.await.unwrap());
    }
    let made = connections() - before;
    assert!((1..=CALLS * 2).contains(&made), "{made}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_up_is_not_flooded() {
    let (server, shop) = Shop::alone_and_hasty().await;
    shop.pay("warm").await.unwrap();
    server.kill();
    // In its place a listener that closes each connection, and counts them.
    let accepted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&accepted);
    let listener = std::net::TcpListener::bind(server.addr()).unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            drop(connection);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    is_not_flooded(&shop, || accepted.load(Ordering::SeqCst)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_not_flooded_while_there_is_no_primary() {
    let group = SentinelSetup::builder();
    let group = group.down_after(Duration::from_mins(1)).start();
    let shop = Shop::open_hasty(&sentinel_url(&group)).await;
    shop.pay("warm").await.unwrap();
    group.kill_primary();
    is_not_flooded(&shop, || {
        let count = group.sentinels()[0].info("stats", "total_connections_received");
        count.parse().unwrap()
    })
    .await;
}
