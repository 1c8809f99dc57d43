//! A node that falls silent.

use std::time::{Duration, Instant};

use idem_harness::{ClusterSetup, RedisServer};
use idem_tests::shop::{HASTE, SLACK, Shop, assert_unavailable, patiently};

use crate::setup::primaries;

/// The records of a shop on a node. Not `DBSIZE`, which counts the expiring keys of other tests.
fn records(shop: &Shop, node: &RedisServer) -> usize {
    let names = node.cli(&["KEYS", &format!("{}:*", shop.prefix())]);
    names.split_whitespace().count()
}

/// Keys of a shop on this node, and keys on other nodes; all have answers.
async fn sorted(
    shop: &Shop,
    cluster: &ClusterSetup,
    node: &RedisServer,
) -> (Vec<String>, Vec<String>) {
    let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
    let nodes = primaries(cluster);
    for number in 0.. {
        let key = number.to_string();
        let before = nodes.map(|node| records(shop, node));
        patiently("a call", shop.pay(&key)).await.unwrap();
        let after = nodes.map(|node| records(shop, node));
        let grown: Vec<_> = (0..nodes.len())
            .filter(|at| before[*at] != after[*at])
            .collect();
        assert_eq!(grown.len(), 1, "one record more: {before:?}, {after:?}");
        if nodes[grown[0]].port() == node.port() {
            here.push(key);
        } else {
            elsewhere.push(key);
        }
        if here.len() >= 3 && elsewhere.len() >= 10 {
            break;
        }
    }
    (here, elsewhere)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_disturbs_no_other() {
    let cluster = ClusterSetup::builder()
        // Prevents a failover.
        .node_timeout(Duration::from_mins(1))
        .start();
    let node = cluster.node_of_slot(8_000);
    let shop = Shop::open_hasty(&cluster.urls()[1]).await;
    let (here, elsewhere) = sorted(&shop, &cluster, node).await;
    let runs = shop.runs();
    node.pause();
    let mut took_others = Vec::new();
    for key in &here {
        let began = Instant::now();
        let blocked = async {
            let answer = shop.pay(key).await;
            (answer, began.elapsed())
        };
        let others = async {
            let mut times = Vec::new();
            while began.elapsed() < HASTE {
                for key in &elsewhere {
                    let one = Instant::now();
                    shop.pay(key).await.unwrap();
                    times.push(one.elapsed());
                }
                tokio::task::yield_now().await;
            }
            times
        };
        let ((answer, took), times) = tokio::join!(blocked, others);
        assert_unavailable(answer);
        assert!(took < HASTE + SLACK, "{took:?}");
        took_others.extend(times);
    }
    let (calls, slowest) = (took_others.len(), took_others.iter().max().unwrap());
    // A call blocked by the silent node would wait for its reply most of the time. The machine may be suspended as
    // well, but not for half of the test.
    let slow = took_others.iter().filter(|took| **took > HASTE / 8);
    let slow: Duration = slow.sum();
    eprintln!(
        "{calls} calls of other nodes beside a silent one, the slowest in {slowest:?}, \
         {slow:?} in slow ones"
    );
    let all = HASTE * u32::try_from(here.len()).unwrap();
    assert!(slow < all / 2, "{slow:?} of {all:?}");
    node.resume();
    for key in &here {
        shop.pay(key).await.unwrap();
    }
    assert_eq!(shop.runs(), runs, "answers are replayed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_whose_place_is_taken_is_left() {
    let cluster = ClusterSetup::start();
    let node = cluster.node_of_slot(8_000);
    let shop = Shop::open_hasty(&cluster.urls()[0]).await;
    let (here, elsewhere) = sorted(&shop, &cluster, node).await;
    let runs = shop.runs();
    node.pause();
    assert_unavailable(shop.pay(&here[0]).await);
    tokio::task::block_in_place(|| cluster.await_new_primary(8_000, node));
    // It is still silent, and its connections are still open.
    let began = Instant::now();
    let all = async {
        for key in here.iter().chain(&elsewhere) {
            while let Err(error) = shop.pay(key).await {
                assert!(error.refused().is_retryable());
            }
        }
    };
    patiently("the answers of the new primary", all).await;
    eprintln!("all answers {:?} after the failover", began.elapsed());
    assert_eq!(shop.runs(), runs, "answers are replayed");
    node.resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_node_falls_silent_in_its_body_loses_no_answer() {
    let cluster = ClusterSetup::start();
    let node = cluster.node_of_slot(16_000);
    let shop = Shop::open_hasty(&cluster.urls()[0]).await;
    let mut on_node = None;
    for number in 0..100 {
        let key = number.to_string();
        let before = records(&shop, node);
        let mut paused = false;
        let answer = shop
            .pay_by(&key, async |_| {
                if records(&shop, node) != before {
                    // Its replica has the claim.
                    node.cli(&["WAIT", "1", "20000"]);
                    node.pause();
                    paused = true;
                }
                Ok(())
            })
            .await;
        let receipt = answer.expect("a body that has succeeded is a call that has");
        if paused {
            on_node = Some((key, receipt));
            break;
        }
    }
    let (key, receipt) = on_node.expect("a third of the keys are there");
    assert_eq!(shop.events.count("unsaved"), 1);
    let runs = shop.runs();
    let new = tokio::task::block_in_place(|| cluster.await_new_primary(16_000, node));
    idem_tests::shop::happened(&shop.events, "completed", runs).await;
    assert_eq!(patiently("a replay", shop.pay(&key)).await, Ok(receipt));
    assert_eq!(shop.runs(), runs);
    assert_ne!(new.port(), node.port());
    node.resume();
}
