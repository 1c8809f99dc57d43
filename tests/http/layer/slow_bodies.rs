//! Requests whose bodies do not arrive.

use std::time::Duration;

use axum::routing::post;
use http::Version;
use idem_runtime::http::IdempotencyLayer;

use crate::client::{
    Fixture, KEY, bare, data, frames, numbered, order, others, patiently, ran, routed, spawn,
};
use crate::server::{Server, request};

/// Each byte that comes is no reason to wait for longer.
#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_given_up_before_anything_is_claimed() {
    let (hasty, default) = (Duration::from_secs(3), Duration::from_secs(30));
    for (set, version) in [
        (None, Version::HTTP_10),
        (None, Version::HTTP_11),
        (None, Version::HTTP_2),
        (Some(hasty), Version::HTTP_11),
    ] {
        let limit = set.unwrap_or(default);
        let (fixture, shop) = numbered(|layer| {
            let layer = layer.max_running(1);
            set.into_iter().fold(layer, IdempotencyLayer::body_timeout)
        });
        let (source, body) = frames();
        source.send(data("te")).unwrap();
        let mut request = order(body);
        *request.version_mut() = version;
        let client = spawn(&shop, request);
        let waits = fixture.clock.sleeper_within(limit);
        patiently("the body is waited for", waits).await;
        assert_eq!(fixture.clock.next_wake(), Some(limit));
        fixture
            .clock
            .advance(limit.saturating_sub(Duration::from_secs(1)));
        source.send(data("a")).unwrap();
        others().await;
        assert!(!client.is_finished());
        fixture.clock.advance(Duration::from_secs(1));
        let refused = patiently("it is given up", client).await.unwrap();
        assert_eq!(refused.problem(), (408, "body-timeout"));
        assert_eq!(refused.json()["retryable"], true);
        // HTTP/2 has no such header: RFC 9113, section 8.2.2.
        let close = (version < Version::HTTP_2).then_some("close");
        assert_eq!(refused.header("connection"), close, "{version:?}");
        assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
        let next = ("the next", order("tea"), ran("1"));
        fixture.walk(&shop, [next]).await;
    }
}

/// Nor has that of a request without a key.
#[tokio::test]
async fn a_body_has_no_deadline_if_the_layer_sets_none() {
    let without = |layer: IdempotencyLayer| layer.body_timeout(Duration::MAX);
    for (row, (fixture, shop)) in [
        ("keyed", numbered(without)),
        ("bare", numbered(IdempotencyLayer::optional)),
    ] {
        let (source, body) = frames();
        let request = if row == "bare" {
            bare(body)
        } else {
            order(body)
        };
        let client = spawn(&shop, request);
        others().await;
        fixture.clock.advance(Duration::from_hours(24 * 365));
        others().await;
        assert!(!client.is_finished(), "{row}");
        source.send(data("tea")).unwrap();
        drop(source);
        assert_eq!(patiently(row, client).await.unwrap().body, "1");
    }
}

/// Over a socket: the client has its 408, and the server lets go of the connection.
#[tokio::test]
async fn a_slow_client_loses_its_connection() {
    let fixture = Fixture::new();
    let counter = fixture.clone();
    let handler = post(move |order: String| async move { format!("{order}: {}", counter.run()) });
    let server = Server::start(routed(handler, fixture.layer())).await;
    let mut client = server.connect().await;
    let whole = request(format!("Idempotency-Key: {KEY}\r\n"), "two teapots");
    // A client that would keep its connection.
    let whole = String::from_utf8(whole).unwrap();
    let whole = whole.replace("Connection: close\r\n", "");
    client.write(&whole.as_bytes()[..whole.len() - 4]).await;
    let waits = fixture.clock.sleeper_within(Duration::from_secs(30));
    patiently("the body is waited for", waits).await;
    fixture.clock.advance(Duration::from_secs(30));
    let answer = client.answer().await;
    assert_eq!(answer.problem(), (408, "body-timeout"));
    assert_eq!(answer.headers["connection"], "close");
    assert_eq!(fixture.runs(), 0);
}
