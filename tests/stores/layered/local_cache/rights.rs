//! A Redis user without the right to subscribe or to publish.

use std::sync::Arc;
use std::time::Duration;

use idem_harness::RedisServer;
use idem_runtime::cache::LocalCache;
use idem_runtime::clock::ManualClock;
use idem_tests::shop::{PASSWORD, connect, until};

use super::fixture::Fixture;
use super::redis::{known_to_both, taken_back};

const NEEDED: &str = "~idem:* +eval +evalsha +get +getrange +set +time +pttl +pexpire +strlen \
                      +exists +hello +info";

fn server(rights: &str) -> RedisServer {
    let rules = format!("on >{PASSWORD} resetchannels {NEEDED} {rights}");
    // On disk, because a server without a file causes a warning.
    let server = RedisServer::builder().append_only_every_second();
    server.acl_user("app", &rules).start()
}

/// A fixture of this user. Its clock stands still.
async fn fixture(server: &RedisServer, clock: &ManualClock) -> Fixture {
    let store = connect(server.url_as("app", PASSWORD)).await.unwrap();
    Fixture::with(Arc::new(store), LocalCache::new(), |engine| {
        engine.clock(clock.clone())
    })
    .await
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    let server = server("&idem:* +publish +subscribe +unsubscribe");
    let clock = ManualClock::new();
    let one = fixture(&server, &clock).await;
    let other = fixture(&server, &clock).await.sharing(&one);
    taken_back(&one, &other, "a").await;
    for fixture in [&one, &other] {
        assert_eq!(fixture.warnings(""), 0);
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_subscribe_is_warned_and_relies_on_max_age() {
    let server = server("&idem:* +publish +unsubscribe");
    let clock = ManualClock::new();
    let one = fixture(&server, &clock).await;
    let other = fixture(&server, &clock).await.sharing(&one);
    let run = known_to_both(&one, &other, "a").await;
    until("it is warned of", || {
        other.warnings("may not subscribe to `idem:resolved`") == 1
    })
    .await;
    clock.advance(Duration::from_secs(20));
    one.reset("a").await;
    assert_eq!(one.pay("a").await, Ok(run + 1));
    clock.advance(Duration::from_millis(39_999));
    other.is_local("a", run).await;
    clock.advance(Duration::from_millis(1));
    other.is_asked("a", run + 1).await;
}

#[tokio::test]
async fn a_user_without_the_right_to_publish_is_warned() {
    let server = server("&idem:* +subscribe +unsubscribe");
    let clock = ManualClock::new();
    let one = fixture(&server, &clock).await;
    let other = fixture(&server, &clock).await.sharing(&one);
    until("it is warned of", || {
        one.warnings("may not publish to `idem:resolved`") == 1
    })
    .await;
    let run = known_to_both(&one, &other, "a").await;
    one.reset("a").await;
    assert_eq!(one.pay("a").await, Ok(run + 1), "it happens all the same");
    clock.advance(Duration::from_mins(1));
    other.is_asked("a", run + 1).await;
}
