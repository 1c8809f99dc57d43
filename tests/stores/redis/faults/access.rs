//! Authentication and rights: users, passwords and sockets.

use idem_harness::RedisServerBuilder;
use idem_tests::shop::{assert_refused, assert_refused_by_store, assert_store_says};

use crate::prelude::*;

/// Every kind of call: short and long answers, errors, refusals, renewals.
async fn everything_works(url: &str) -> Shop {
    let lease = Duration::from_secs(3);
    let settings = |engine| persistent(engine).lease(lease);
    let shop = Shop::open_with(url, patient, settings).await;
    for _ in 0..2 {
        shop.pay("a").await.unwrap();
        let memo = "m".repeat(20_000);
        let long = shop.pay_with_memo("long", 1, memo, async |_| Ok(()));
        long.await.unwrap();
        let declined = shop.pay_by("b", async |_| Err(Failure::Declined)).await;
        assert_eq!(declined, Err(Failure::Declined));
        let down = shop.pay_by("c", async |_| Err(Failure::Down)).await;
        assert_eq!(down, Err(Failure::Down));
        shop.pay_for("a", 2, async |_| Ok(())).await.unwrap_err();
    }
    let slow = shop.pay_by("slow", async |_| {
        happened(&shop.events, "renewed", 1).await;
        shop.pay("slow").await.expect_err("it runs");
        Ok(())
    });
    slow.await.unwrap();
    assert_eq!(shop.runs(), 6);
    assert_eq!(shop.events.count("unsaved"), 0);
    assert_eq!(shop.events.count("renewal failed"), 0);
    shop
}

pub(crate) fn with_user(rules: &str) -> (RedisServer, String) {
    let rules = format!("on >{PASSWORD} {rules}");
    // On disk, because a server without a file causes a warning.
    let server = RedisServer::builder().append_only_every_second();
    let server = server.acl_user("app", &rules).start();
    let url = server.url_as("app", PASSWORD);
    (server, url)
}

/// The rights that the documentation of `RedisStore` lists.
pub(crate) const DOCUMENTED: &str = "~idem:* +eval +evalsha +get +getrange +set +time +pttl \
                          +pexpire +strlen +exists +hello +info &idem:* +publish +subscribe \
                          +unsubscribe";

#[tokio::test]
async fn a_wrong_password_is_refused_without_repeating_it() {
    let server = RedisServer::builder().password(PASSWORD).start();
    let wrong = server.url_as("", "another-password-marker");
    assert_refused(&wrong, "user or password").await;
    assert_refused(format!("{wrong}?protocol=resp3"), "user or password").await;
    everything_works(&server.url()).await;
}

#[tokio::test]
async fn a_missing_password_is_refused() {
    let server = RedisServer::builder().password(PASSWORD).start();
    let bare = format!("redis://{}", server.addr());
    assert_refused(&bare, "requires a password").await;
}

#[tokio::test]
async fn a_wrong_user_is_refused() {
    let server = RedisServer::start();
    let wrong = server.url_as("nobody", PASSWORD);
    assert_refused(&wrong, "user or password").await;
}

#[tokio::test]
async fn an_unneeded_password_is_refused() {
    let server = RedisServer::start();
    let url = format!("redis://:{PASSWORD}@{}", server.addr());
    match RedisStore::connect(&url).await {
        // Where the default user has no password, the server accepts any.
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}"),
    }
}

#[tokio::test]
async fn a_password_that_is_changed_during_a_body_costs_no_answer() {
    let server = RedisServer::builder().password(PASSWORD).start();
    let shop = Shop::open_hasty(&server.url()).await;
    let change = |password| {
        server.cli(&["CONFIG", "SET", "requirepass", password]);
        server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    };
    let answer = shop.pay_while("a", || change("changed")).await;
    assert_eq!(shop.events.count("unsaved"), 1);
    assert_unavailable(shop.pay("b").await);
    shop.says_unavailable("user or password").await;
    change(PASSWORD);
    happened(&shop.events, "completed", 1).await;
    assert_eq!(shop.pay("a").await, answer);
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn an_unknown_database_is_refused() {
    let server = RedisServer::start();
    let url = format!("{}/99", server.url());
    assert_refused(&url, "database").await;
    let shop = everything_works(&format!("{}/3", server.url())).await;
    let pattern = format!("{}:*", shop.prefix());
    assert_eq!(server.cli(&["KEYS", &pattern]), "");
}

#[tokio::test]
async fn a_url_that_is_none_is_refused_without_repeating_it() {
    for url in [
        "",
        "localhost",
        "redis:/user:password-marker@",
        "http://user:password-marker@localhost",
        "redis://user:password-marker@localhost:password-marker",
        "redis://user:password-marker@localhost/password-marker",
        "redis://user:password-marker@localhost?protocol=password-marker",
    ] {
        let (kind, message) = refused(RedisStore::builder(url)).await;
        assert_eq!(kind, StoreErrorKind::Refused, "{url}: {message}");
        assert!(message.contains("URL"), "{url}: {message}");
        assert!(!format!("{:?}", RedisStore::builder(url)).contains(PASSWORD));
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_unless_allowed() {
    let server = RedisServer::builder()
        .arg("--maxmemory", "100mb")
        .arg("--maxmemory-policy", "volatile-lru")
        .start();
    let (kind, message) = refused(RedisStore::builder(server.url())).await;
    assert_eq!(kind, StoreErrorKind::Refused);
    for part in [
        "maxmemory-policy volatile-lru",
        "noeviction",
        "allow_eviction",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let settings = |engine| engine;
    let shop = Shop::open_with(&server.url(), RedisStoreBuilder::allow_eviction, settings).await;
    let warned = shop.events.count("warning: Redis eviction: ");
    assert_eq!(warned, 1);
    shop.pay("a").await.unwrap();
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    let (_server, url) = with_user(DOCUMENTED);
    for url in [&url, &format!("{url}?protocol=resp3")] {
        let shop = everything_works(url).await;
        assert_eq!(shop.events.count("warning"), 0);
    }
}

#[tokio::test]
async fn each_documented_right_is_needed() {
    let rights: Vec<_> = DOCUMENTED
        .split(' ')
        .filter(|right| right.starts_with('+'))
        .collect();
    let server = RedisServer::start();
    for right in rights {
        // Commands that an ordinary call does not need: for large and empty values, for the start-up check, and to
        // shorten waits.
        if [
            "+strlen",
            "+get",
            "+exists",
            "+info",
            "+hello",
            "+pexpire",
            "+eval",
            "+publish",
            "+subscribe",
            "+unsubscribe",
        ]
        .contains(&right)
        {
            continue;
        }
        let rules = DOCUMENTED.replace(&format!("{right} "), " ");
        let setting = format!("ACL SETUSER app reset on >{PASSWORD} {rules}");
        server.cli(&setting.split_whitespace().collect::<Vec<_>>());
        let shop = Shop::open_hasty(&server.url_as("app", PASSWORD)).await;
        let first = shop.pay("a").await;
        if right == "+pttl" {
            // Only an existing record of another claim is queried for its expiry, not a new key or the owner's own
            // claim.
            first.expect("the call is like any other");
            let down = shop.pay_by("b", async |_| Err(Failure::Down)).await;
            assert_eq!(down, Err(Failure::Down));
        } else {
            assert_refused_by_store(first);
            assert_eq!(shop.runs(), 0);
        }
        let key = if right == "+pttl" { "b" } else { "a" };
        let again = shop.pay(key).await;
        let refusal = again.expect_err("a right is missing").refused();
        let refusal = refusal.to_string();
        assert!(refusal.contains("lacks a right"), "{right}: {refusal}");
    }
}

#[tokio::test]
async fn a_user_without_dangerous_commands_is_warned_about_the_policy() {
    let (_server, url) = with_user("~idem:* +@all -@dangerous -@admin");
    let shop = everything_works(&url).await;
    // Nor may it use any channel, like any new user.
    assert_eq!(shop.events.count("warning"), 2);
    for warning in [
        "warning: Redis settings: not shown to this user",
        "warning: Redis rights: lacks &idem:* +publish +subscribe",
    ] {
        assert_eq!(shop.events.count(warning), 1, "{warning}");
    }
}

#[tokio::test]
async fn a_server_that_hides_its_version_is_warned_about() {
    let hide =
        |builder: RedisServerBuilder, command| builder.args(["--rename-command", command, ""]);
    let server = hide(hide(RedisServer::builder(), "HELLO"), "INFO").start();
    let url = server.url();
    let shop = everything_works(&url).await;
    assert_eq!(shop.events.count("warning"), 3);
    for topic in ["version", "role", "settings"] {
        assert_eq!(shop.events.count(&format!("warning: Redis {topic}: ")), 1);
    }
    // Its scripts carry no declarations, and still find room for an answer.
    let shop = Shop::open_hasty(&url).await;
    let change = || server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let answer = shop.pay_while("a", change).await;
    assert_eq!(shop.events.count("unsaved"), 0);
    assert_unavailable(shop.pay("b").await);
    assert_eq!(shop.pay("a").await, answer);
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_prefix_that_the_user_may_not_touch_is_refused() {
    let (_server, url) = with_user("~other:* +@all");
    let shop = Shop::open(&url).await;
    assert_refused_by_store(shop.pay("a").await);
    assert_store_says(&shop, StoreErrorKind::Refused, "lacks a right").await;
    assert_eq!(shop.runs(), 0);
}

#[tokio::test]
async fn resp3_works() {
    let server = RedisServer::builder().password(PASSWORD).start();
    everything_works(&format!("{}?protocol=resp3", server.url())).await;
}

#[tokio::test]
async fn a_unix_socket_works() {
    let socket = RedisServerBuilder::unix_socket(RedisServer::builder());
    let server = socket.start();
    let url = server.unix_url();
    everything_works(&url).await;
    everything_works(&url.replace("redis+unix:", "unix:")).await;
}
