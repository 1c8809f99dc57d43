//! Large answers, which bypass the script that stores answers.

use idem_tests::shop::proxied;

use crate::prelude::*;
use crate::start_up_report::user;

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
    user(&server, &format!("{DOCUMENTED} +rename"));
    let shop = Shop::open(&url).await;
    pays_once(&shop, "warm").await;
    monitor.names();
    pays_once(&shop, "c").await;
    assert_eq!(monitor.names(), ["SET", "SET", "EVALSHA", "SET"]);
}

/// A lost reply, or a server without room, in the body.
#[tokio::test]
async fn a_fault_does_not_keep_a_large_answer_from_being_stored() {
    for loses in [true, false] {
        let (server, proxy) = proxied();
        let shop = Shop::open_hasty(&proxy.url()).await;
        pays_once(&shop, "warm").await;
        let body = async |_| {
            if loses {
                proxy.drop_next_reply_to("stage");
            } else {
                server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
            }
            Ok(())
        };
        let answer = shop.pay_with_memo("a", 1, memo(), body).await.unwrap();
        assert_eq!(proxy.stats().dropped_replies, usize::from(loses));
        assert_eq!(shop.events.count("unsaved"), 0, "loses: {loses}");
        assert_eq!(shop.pay("a").await, Ok(answer), "loses: {loses}");
        // An answer that was staged before a lost reply expires.
        assert_eq!(strays(&server).len(), usize::from(loses));
    }
}

#[tokio::test]
async fn an_overtaken_call_moves_nothing() {
    let (server, shop) = Shop::alone().await;
    pays_once(&shop, "warm").await;
    let mut winner = None;
    let body = async |_| {
        shop.advance(&server, Duration::from_mins(1));
        winner = Some(shop.pay("a").await);
        Ok(())
    };
    let answer = shop.pay_with_memo("a", 1, memo(), body).await;
    assert_eq!(Some(answer), winner);
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
}
