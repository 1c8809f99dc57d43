//! How often 200 callers connect while no server accepts them.

use std::sync::atomic::{AtomicU64, Ordering};

use idem_harness::SentinelSetup;
use idem_tests::sentinel_url;

use crate::prelude::*;

/// New connections a second, while 200 calls fail.
async fn rate(url: &str, connections: impl Fn() -> u64, break_it: impl FnOnce()) -> u64 {
    let shop = Shop::open_with(url, |store| store, |engine| engine).await;
    shop.pay("warm").await.unwrap();
    break_it();
    let before = connections();
    let began = Instant::now();
    let calls: Vec<_> = (0..200)
        .map(|number| {
            let shop = shop.clone();
            tokio::spawn(async move { shop.pay(&number.to_string()).await })
        })
        .collect();
    for call in calls {
        let _ = call.await.unwrap();
    }
    let made = connections() - before;
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap().max(1);
    made * 1_000 / millis
}

fn received(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "stats"]);
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("total_connections_received:"));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_up_is_not_flooded() {
    let server = RedisServer::start();
    let accepted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&accepted);
    let rate = rate(
        &server.url(),
        || accepted.load(Ordering::SeqCst),
        || {
            server.kill();
            let listener = std::net::TcpListener::bind(server.addr()).unwrap();
            std::thread::spawn(move || {
                for connection in listener.incoming() {
                    drop(connection);
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
        },
    )
    .await;
    assert!(rate < 200, "{rate}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_not_flooded_while_there_is_no_primary() {
    let group = SentinelSetup::builder()
        .down_after(Duration::from_secs(4))
        .start();
    let url = sentinel_url(&group);
    let sentinel = &group.sentinels()[0];
    let rate = rate(
        &url,
        || received(sentinel),
        || {
            group.kill_primary();
        },
    )
    .await;
    assert!(rate < 200, "{rate}");
}
