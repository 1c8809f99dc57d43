//! How a store finds the new primary of a group under Sentinel.

use idem_harness::{Partition, RedisServer, SentinelSetup, TcpProxy};
use idem_tests::sentinel_url;
use idem_tests::shop::{Shop, patiently, until};

/// Number of this shop's records on a server.
fn records(server: &RedisServer, shop: &Shop) -> usize {
    let names = server.cli(&["KEYS", &format!("{}:shop.pay:*", shop.prefix())]);
    names.split_whitespace().count()
}

/// A client that reaches the sentinels only after the failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_while_the_sentinels_are_out_of_reach_is_noticed() {
    let _seat = crate::seat().await;
    let group = SentinelSetup::builder().partitions().start();
    let proxies: Vec<_> = group
        .sentinel_addrs()
        .into_iter()
        .map(TcpProxy::start)
        .collect();
    let url = proxies.iter().map(|proxy| proxy.addr().to_string());
    let url = format!(
        "redis+sentinel://{}/{}",
        url.collect::<Vec<_>>().join(","),
        SentinelSetup::NAME
    );
    let shop = Shop::open_with(&url, |store| store, |engine| engine).await;
    shop.pay("warm").await.unwrap();
    let old = group.primary();
    for proxy in &proxies {
        proxy.black_hole(true);
    }
    group.isolate(&[old], Partition::Silent);
    let new = group.await_new_primary(old);
    group.await_settled();
    for proxy in &proxies {
        proxy.black_hole(false);
    }
    let reaches_it = async {
        for number in 0.. {
            let _ = shop.pay(&number.to_string()).await;
            if records(new, &shop) > 1 {
                break;
            }
        }
    };
    patiently("a claim reaches the new primary", reaches_it).await;
}

/// The runtime on which the store was created ends, while another continues.
#[test]
fn a_failover_is_noticed_after_the_first_runtime_has_ended() {
    let group = SentinelSetup::builder().partitions().start();
    let url = sentinel_url(&group);
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (first, second) = (runtime(), runtime());
    let shop = first.block_on(Shop::open_with(&url, |store| store, |engine| engine));
    let old = group.primary();
    old.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    second.block_on(shop.pay("warm")).unwrap();
    drop(first);
    second.block_on(shop.pay("warmer")).unwrap();
    group.isolate(&[old], Partition::Silent);
    let new = group.await_new_primary(old);
    group.await_settled();
    let mut number = 0;
    second.block_on(until("a claim reaches the new primary", || {
        number += 1;
        let (key, caller) = (number.to_string(), shop.clone());
        second.spawn(async move { caller.pay(&key).await });
        records(new, &shop) > 2
    }));
}
