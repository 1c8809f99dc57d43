//! Requests whose bodies do not arrive.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::post;
use http::Version;

use crate::client::{Fixture, KEY, data, frames, order, patiently, routed, send, spawn};
use crate::server::{Server, request};

/// A request whose body never ends, once it is waited for.
async fn stalls(fixture: &Fixture, shop: &Router, version: Version) -> crate::client::Answer {
    let (source, body) = frames();
    source.send(data("te")).unwrap();
    let mut request = order(body);
    *request.version_mut() = version;
    let client = spawn(shop, request);
    let waits = fixture.clock.sleeper_within(Duration::from_secs(30));
    patiently("the body is waited for", waits).await;
    assert_eq!(fixture.clock.next_wake(), Some(Duration::from_secs(30)));
    // Each byte that comes is no reason to wait for longer.
    fixture.clock.advance(Duration::from_secs(29));
    source.send(data("a")).unwrap();
    crate::middleware::others().await;
    assert!(!client.is_finished());
    fixture.clock.advance(Duration::from_secs(1));
    patiently("it is given up", client).await.unwrap()
}

#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_given_up_before_anything_is_claimed() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer().max_running(1), |run| run.to_string());
    for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
        let refused = stalls(&fixture, &shop, version).await;
        assert_eq!(refused.problem(), (408, "body-timeout"));
        let document: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!(document["retryable"], true);
        let close = refused.headers.get("connection");
        // HTTP/2 has no such header: RFC 9113, section 8.2.2.
        assert_eq!(close.is_some(), version < Version::HTTP_2, "{version:?}");
        assert!(close.is_none_or(|close| close == "close"));
    }
    assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
    assert_eq!(send(&shop, order("tea")).await.body, "1");
}

#[tokio::test]
async fn a_layer_sets_the_deadline_of_a_body() {
    let fixture = Fixture::new();
    let layer = fixture.layer().body_timeout(Duration::from_secs(3));
    let shop = fixture.orders(layer, |run| run.to_string());
    let (_source, body) = frames();
    let client = spawn(&shop, order(body));
    let waits = fixture.clock.sleeper_within(Duration::from_secs(3));
    patiently("the body is waited for", waits).await;
    fixture.clock.advance(Duration::from_secs(3));
    assert_eq!(
        patiently("it is given up", client).await.unwrap().status,
        408
    );
}

#[tokio::test]
async fn a_body_has_no_deadline_if_the_layer_sets_none() {
    let fixture = Fixture::new();
    let layer = fixture.layer().body_timeout(Duration::MAX);
    let shop = fixture.orders(layer, |run| run.to_string());
    let (source, body) = frames();
    let client = spawn(&shop, order(body));
    crate::middleware::others().await;
    fixture.clock.advance(Duration::from_hours(24 * 365));
    crate::middleware::others().await;
    assert!(!client.is_finished());
    drop(source);
    assert_eq!(patiently("an answer", client).await.unwrap().body, "1");
}

/// Over a socket: the client has its 408, and the server lets go of the connection.
#[tokio::test]
async fn a_slow_client_loses_its_connection() {
    let fixture = Fixture::new();
    let counter = fixture.clone();
    let handler = post(move |order: String| async move { format!("{order}: {}", counter.run()) });
    let shop = routed(handler, fixture.layer());
    let server = Server::start(shop).await;
    let mut client = server.connect().await;
    let whole = request(format!("Idempotency-Key: {KEY}\r\n"), "two teapots");
    // One that would keep its connection.
    let whole = String::from_utf8(whole)
        .unwrap()
        .replace("Connection: close\r\n", "");
    client.write(&whole.as_bytes()[..whole.len() - 4]).await;
    let waits = fixture.clock.sleeper_within(Duration::from_secs(30));
    patiently("the body is waited for", waits).await;
    fixture.clock.advance(Duration::from_secs(30));
    let answer = client.answer().await;
    assert_eq!(answer.problem(), (408, "body-timeout"));
    assert_eq!(answer.headers["connection"], "close");
    assert_eq!(fixture.runs(), 0);
}

#[tokio::test]
async fn a_request_without_a_key_is_not_timed() {
    let fixture = Fixture::new();
    let counter = fixture.clone();
    let handler = post(move |order: String| async move { format!("{order}: {}", counter.run()) });
    let layer = fixture.layer().optional();
    let shop = routed(handler, layer);
    let (source, body) = frames();
    let bare = Request::post("/orders").body(body).unwrap();
    let client = spawn(&shop, bare);
    crate::middleware::others().await;
    assert_eq!(fixture.clock.next_wake(), None);
    source.send(data("tea")).unwrap();
    drop(source);
    assert_eq!(patiently("an answer", client).await.unwrap().body, "tea: 1");
}
