//! A server that denies the user notifications.

use idem_harness::RedisServer;
use idem_runtime::store::StoreErrorKind;
use idem_tests::shop::{PASSWORD, assert_contains};

use crate::client::{Client, key, told, untold};

/// The rights that the documentation of `RedisStore` lists, for every call and for notifications.
const NEEDED: &str = "~idem:* +eval +evalsha +get +getrange +set +time +pttl +pexpire +strlen \
                      +exists +hello +info";
const TOLD: &str = "&idem:* +publish +subscribe +unsubscribe";

async fn with_rights(rules: &str) -> (RedisServer, Client) {
    let rules = format!("on >{PASSWORD} resetchannels {rules}");
    // On disk, because a server without a file causes a warning.
    let server = RedisServer::builder().append_only_every_second();
    let server = server.acl_user("app", &rules).start();
    let client = Client::of(&server.url_as("app", PASSWORD)).await;
    (server, client)
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    let (_server, client) = with_rights(&format!("{NEEDED} {TOLD}")).await;
    let mut watch = client.watch(&key(1)).await;
    client.pass(&key(1)).await;
    told(&mut watch).await;
    drop(watch);
    let _again = client.watch(&key(1)).await;
    assert_eq!(client.0.warnings(), Vec::<String>::new());
}

/// Subscriptions that the server refused.
fn refusals(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_subscribe:"));
    let count = line.and_then(|line| line.split("rejected_calls=").nth(1)?.split(',').next());
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn a_user_without_the_right_to_subscribe_is_warned() {
    for rights in [
        "&idem:* +publish +unsubscribe",
        "&other:* +publish +subscribe +unsubscribe",
        "",
    ] {
        let (server, client) = with_rights(&format!("{NEEDED} {rights}")).await;
        assert!(
            client.try_watch(&key(1)).await.unwrap().is_none(),
            "{rights}"
        );
        // One warning from the connect, and one from the refusal.
        let [lacks, refused] = client.0.warnings().try_into().unwrap();
        assert!(
            lacks.contains("lacks ") && lacks.contains("subscribe"),
            "{lacks}"
        );
        assert_contains(&refused, "does not let this user subscribe");
        // The subscription is not retried for every call.
        for number in 0..100 {
            let watch = client.try_watch(&key(number)).await.unwrap();
            assert!(watch.is_none());
        }
        assert_eq!(refusals(&server), 1, "{rights}");
        client.pass(&key(1)).await;
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_publish_still_completes() {
    let (_server, client) = with_rights(&format!("{NEEDED} &idem:* +subscribe +unsubscribe")).await;
    let mut watch = client.watch(&key(1)).await;
    let claim = client.take(&key(1)).await;
    client.complete(&key(1), &claim).await;
    // The other key is subscribed to after all published messages have arrived.
    let _other = client.watch(&key(2)).await;
    assert!(untold(&mut watch));
}

#[tokio::test]
async fn a_server_without_the_command_is_like_one_that_refuses() {
    let server = RedisServer::builder()
        .append_only_every_second()
        .args(["--rename-command", "SUBSCRIBE", ""])
        .start();
    let client = Client::of(&server.url()).await;
    assert!(client.try_watch(&key(1)).await.unwrap().is_none());
    let [lacks, refused] = client.0.warnings().try_into().unwrap();
    assert!(lacks.contains("lacks +subscribe"), "{lacks}");
    assert_contains(&refused, "does not let this user subscribe");
}

#[tokio::test]
async fn a_server_without_room_for_a_connection_is_tried_again() {
    let server = RedisServer::builder().append_only_every_second().start();
    let client = Client::of(&server.url()).await;
    // A connection made in advance: there will be no room for another.
    let mut admin = server.connect();
    let open = server.cli(&["CLIENT", "LIST"]).lines().count() - 1;
    let mut limit = |limit: usize| {
        let limit = limit.to_string();
        let reply = admin.command(&["CONFIG", "SET", "maxclients", &limit]);
        assert_eq!(reply.unwrap().as_error(), None);
    };
    limit(open);
    let error = client.try_watch(&key(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    limit(1_000);
    let mut watch = client.watch_in_the_end(&key(1)).await;
    client.pass(&key(1)).await;
    told(&mut watch).await;
    assert_eq!(client.0.warnings(), Vec::<String>::new());
}
