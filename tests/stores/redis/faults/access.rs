//! Authentication and rights: users, passwords and sockets.

use idem_harness::RedisServerBuilder;
use idem_tests::shop::{assert_refused, assert_refused_by_store};

use crate::prelude::*;
use crate::start_up_report::user;

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
    let (open, server) = (
        RedisServer::start(),
        RedisServer::builder().password(PASSWORD).start(),
    );
    let wrong = server.url_as("", "another-password-marker");
    for (url, part) in [
        (format!("redis://{}", server.addr()), "requires a password"),
        (format!("{wrong}?protocol=resp3"), "user or password"),
        (wrong, "user or password"),
        (open.url_as("stranger", PASSWORD), "user or password"),
        (format!("{}/99", open.url()), "database"),
    ] {
        assert_refused(&url, part).await;
    }
}

/// Every way to a server: protocols, a socket, a database.
#[tokio::test]
async fn everything_works_with_each_url() {
    let server = RedisServer::builder().password(PASSWORD).start();
    everything_works(&format!("{}?protocol=resp3", server.url())).await;
    let shop = everything_works(&format!("{}/3", server.url())).await;
    let pattern = format!("{}:*", shop.prefix());
    assert_eq!(server.cli(&["KEYS", &pattern]), "");
    let socket = RedisServerBuilder::unix_socket(RedisServer::builder()).start();
    everything_works(&socket.unix_url()).await;
    let unix = socket.unix_url().replace("redis+unix:", "unix:");
    everything_works(&unix).await;
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
        "Redis eviction: `volatile-lru`",
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

/// Without a right of every call, or under another prefix.
#[tokio::test]
async fn each_documented_right_is_needed() {
    let server = RedisServer::start();
    for right in ["+evalsha", "+getrange", "+set", "+time", "~idem:*"] {
        let rules = DOCUMENTED.replace(&format!("{right} "), "");
        let shop = Shop::open_hasty(&user(&server, &rules)).await;
        let refused = shop.pay("a").await;
        let refusal = refused.clone().unwrap_err().refused().to_string();
        assert_refused_by_store(refused);
        assert!(refusal.contains("lacks a right"), "{right}: {refusal}");
        assert_eq!(shop.runs(), 0, "{right}");
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
