//! Large answers, which bypass the script that stores answers.

use idem_tests::shop::proxied;

use crate::prelude::*;

fn memo() -> String {
    "m".repeat(20_000)
}

/// Calls twice with a large answer: the body runs once, and both calls get its answer.
async fn pays_once(shop: &Shop, key: &str) {
    let runs = shop.runs();
    let pay = || shop.pay_with_memo(key, 1, memo(), async |_| Ok(()));
    let first = pay().await.unwrap();
    assert_eq!(first.memo.len(), memo().len());
    assert_eq!(pay().await, Ok(first));
    assert_eq!(shop.runs(), runs + 1);
    assert_eq!(shop.events.count("unsaved"), 0);
}

/// Keys that are not records with a lifetime of a day.
fn strays(server: &RedisServer) -> Vec<String> {
    let keys = server.cli(&["KEYS", "*"]);
    let short = |key: &&str| {
        let life: i64 = server.cli(&["PTTL", key]).parse().unwrap();
        !(86_000_000..=86_400_000).contains(&life)
    };
    keys.lines().filter(short).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_large_answer_is_moved_to_its_place() {
    let (server, shop) = Shop::alone().await;
    pays_once(&shop, "warm").await;
    let mut monitor = server.monitor();
    pays_once(&shop, "a").await;
    let commands = monitor.commands();
    let sent: Vec<_> = commands
        .iter()
        .filter(|command| !command.is_from_script())
        .collect();
    let names: Vec<_> = sent.iter().map(|command| &*command.name).collect();
    assert_eq!(names, ["SET", "SET", "EVALSHA", "SET"]);
    // The staging key has the prefix, the slot of the record and a short expiry, and belongs to one attempt.
    let (record, stage) = (&sent[0].args[0], &sent[1].args[0]);
    assert!(stage.starts_with(&format!("{}:stage{{{record}}}", shop.prefix())));
    assert_eq!(sent[1].args[2..], ["PX", "60000"]);
    assert_eq!(sent[2].args[1..4], ["2", record, stage]);
    assert!(commands.iter().any(|command| command.name == "RENAME"));
    assert_eq!(strays(&server), [""; 0]);
}

#[tokio::test]
async fn a_user_without_the_right_to_move_still_stores() {
    let (server, url) = with_user(DOCUMENTED);
    let shop = Shop::open(&url).await;
    pays_once(&shop, "a").await;
    let mut monitor = server.monitor();
    pays_once(&shop, "b").await;
    // It is tried once, and its leftover expires.
    assert_eq!(monitor.names(), ["SET", "EVALSHA", "SET"]);
    let strays = strays(&server);
    assert_eq!(strays.len(), 1, "{strays:?}");
    let life: i64 = server.cli(&["PTTL", &strays[0]]).parse().unwrap();
    assert!((0..=60_000).contains(&life), "{life}");
    let rules = format!("ACL SETUSER app reset on >{PASSWORD} {DOCUMENTED} +rename");
    server.cli(&rules.split_whitespace().collect::<Vec<_>>());
    let shop = Shop::open(&url).await;
    pays_once(&shop, "warm").await;
    monitor.names();
    pays_once(&shop, "c").await;
    assert_eq!(monitor.names(), ["SET", "SET", "EVALSHA", "SET"]);
}

#[tokio::test]
async fn a_full_memory_takes_a_large_answer() {
    let (server, shop) = Shop::alone().await;
    pays_once(&shop, "warm").await;
    let answer = shop
        .pay_with_memo("a", 1, memo(), async |_| {
            server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(shop.events.count("unsaved"), 0);
    let replay = shop.pay_with_memo("a", 1, String::new(), async |_| Ok(()));
    assert_eq!(replay.await, Ok(answer));
    assert_eq!(strays(&server), [""; 0]);
}

#[tokio::test]
async fn replies_that_are_lost_store_it_once() {
    let (_server, proxy) = proxied();
    let shop = Shop::open_hasty(&proxy.url()).await;
    pays_once(&shop, "warm").await;
    let answer = shop
        .pay_with_memo("a", 1, memo(), async |_| {
            proxy.drop_next_reply_to("stage");
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(proxy.stats().dropped_replies, 1);
    let replay = shop.pay_with_memo("a", 1, String::new(), async |_| Ok(()));
    assert_eq!(replay.await, Ok(answer));
}

#[tokio::test]
async fn an_overtaken_call_moves_nothing() {
    let (server, shop) = Shop::alone().await;
    pays_once(&shop, "warm").await;
    let minute = Duration::from_mins(1);
    let mut winner = None;
    let answer = shop
        .pay_with_memo("a", 1, memo(), async |_| {
            shop.advance(&server, minute);
            let other = shop.pay_with_memo("a", 1, "the winner's".to_owned(), async |_| Ok(()));
            winner = Some(other.await);
            Ok(())
        })
        .await;
    assert_eq!(Some(answer), winner);
    let gave_back = shop
        .pay_with_memo("b", 1, memo(), async |_| {
            shop.advance(&server, minute);
            let other = shop.pay_by("b", async |_| Err(Failure::Down)).await;
            assert_eq!(other, Err(Failure::Down));
            Ok(())
        })
        .await
        .unwrap();
    // The successor released the key: a late success is better than another run.
    let replay = shop.pay_with_memo("b", 1, String::new(), async |_| Ok(()));
    assert_eq!(replay.await, Ok(gave_back));
}

#[tokio::test]
async fn servers_that_compare_and_set_need_no_script_for_it() {
    let server = RedisServer::builder().version(Edition::Valkey).start();
    let shop = Shop::open(&server.url()).await;
    pays_once(&shop, "warm").await;
    let mut monitor = server.monitor();
    pays_once(&shop, "large").await;
    assert_eq!(monitor.names(), ["SET", "SET", "SET"]);
    shop.pay("small").await.unwrap();
    shop.pay("small").await.unwrap();
    assert_eq!(monitor.names(), ["SET", "SET", "SET"]);
    // Any other record under the key is left to the script.
    let minute = Duration::from_mins(1);
    let mut winner = None;
    let answer = shop
        .pay_by("a", async |_| {
            shop.advance(&server, minute);
            winner = Some(shop.pay("a").await);
            Ok(())
        })
        .await;
    assert_eq!(Some(answer), winner);
    assert_eq!(shop.events.count("adopted"), 1);
    let full = shop.pay_while("full", || server.cli(&["CONFIG", "SET", "maxmemory", "1"]));
    full.await.unwrap();
    assert_eq!(shop.events.count("unsaved"), 0);
    assert_eq!(shop.pay("full").await.map(|receipt| receipt.attempt), Ok(1));
}

/// The script that notifies watchers need not carry a large answer either.
#[tokio::test]
async fn a_large_answer_with_a_watcher_bypasses_the_notifying_script() {
    let server = RedisServer::builder().version(Edition::Valkey).start();
    let shop = Shop::open(&server.url()).await;
    let mut monitor = server.monitor();
    let waited_for = shop.pay_with_memo("a", 1, memo(), async |_| {
        server.cli(&["SETRANGE", &shop.record(&server), "1", "W"]);
        Ok(())
    });
    let answer = waited_for.await.unwrap();
    let memo = memo();
    let mut sent = monitor.commands();
    sent.retain(|sent| !sent.is_from_script() && sent.args.iter().any(|arg| arg.contains(&memo)));
    assert!(!sent.is_empty() && sent.iter().all(|command| command.name == "SET"));
    let replay = shop.pay_with_memo("a", 1, String::new(), async |_| Ok(()));
    assert_eq!(replay.await, Ok(answer));
}
