//! A server that denies the user notifications.

use idem_harness::RedisServer;
use idem_runtime::store::StoreErrorKind;
use idem_tests::shop::{PASSWORD, assert_contains};

use super::client::{Client, key, told};

/// Subscriptions that the server refused.
fn refusals(server: &RedisServer) -> u64 {
    let stats = server.info("commandstats", "cmdstat_subscribe");
    let rejected = stats.split("rejected_calls=").nth(1);
    let count = rejected.and_then(|rejected| rejected.split(',').next());
    count.map_or(0, |count| count.parse().unwrap())
}

/// A server without the command acts as if it refused it.
#[tokio::test]
async fn a_user_without_the_right_to_subscribe_is_warned() {
    const NEEDED: &str = "~idem:* +eval +evalsha +get +getrange +set +time +pttl +pexpire +strlen \
                          +exists +hello +info resetchannels";
    for rights in [
        Some("&idem:* +publish +unsubscribe"),
        Some("&other:* +publish +subscribe +unsubscribe"),
        Some(""),
        None,
    ] {
        // On disk, because a server without a file causes a warning.
        let server = RedisServer::builder().append_only_every_second();
        let server = match rights {
            Some(rights) => server.acl_user("app", &format!("on >{PASSWORD} {NEEDED} {rights}")),
            None => server.args(["--rename-command", "SUBSCRIBE", ""]),
        };
        let server = server.start();
        let url = rights.map_or(server.url(), |_| server.url_as("app", PASSWORD));
        let client = Client::of(&url).await;
        // The subscription is not retried for every call.
        for number in 0..100 {
            let watch = client.try_watch(&key(number)).await.unwrap();
            assert!(watch.is_none(), "{rights:?}");
        }
        // One warning from the connect, and one from the refusal.
        let [lacks, refused] = client.0.warnings().try_into().unwrap();
        let is_named = lacks.contains("lacks ") && lacks.contains("subscribe");
        assert!(is_named, "{lacks}");
        assert_contains(&refused, "does not let this user subscribe");
        if rights.is_some() {
            assert_eq!(refusals(&server), 1, "{rights:?}");
        }
        client.pass(&key(1)).await;
    }
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
