//! Responses that are too large, and that break off.

use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as _, Frame};
use idem_harness::MariaDbServer;
use idem_runtime::EngineBuilder;
use idem_runtime::http::{IdempotencyLayer, KeyVerdict, StatusPolicy};
use idem_runtime::store::Store;
use idem_runtime::store::sql::MySql;
use idem_tests::shop::{engine, started};
use idem_tests::sql::connect;

use crate::client::{
    Fixture, KEY, LOST, call, data, frames, order, patiently, routed, send, with_key,
};
use crate::server::{Server, with_key as raw};

/// A router behind this layer that answers once. A second call fails the test.
pub(super) fn behind(layer: IdempotencyLayer, fixture: &Fixture, response: Response) -> Router {
    let counter = fixture.clone();
    let response = Arc::new(Mutex::new(Some(response)));
    let handler = post(move || async move {
        counter.run();
        response.lock().unwrap().take().expect("it is asked once")
    });
    routed(handler, layer)
}

pub(super) async fn next(response: &mut Response) -> Option<Result<Vec<u8>, axum::Error>> {
    let body = response.body_mut();
    let mut body = std::pin::pin!(body);
    let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx));
    let frame = patiently("a frame", frame).await?;
    Some(frame.map(|frame| frame.into_data().map(Vec::from).unwrap_or_default()))
}

pub(super) async fn is_lost(fixture: &Fixture, shop: &Router) {
    for row in ["again", "once more"] {
        fixture.walk(shop, [(row, order(""), LOST)]).await;
    }
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn a_response_that_is_too_large_reaches_its_client_and_is_not_stored() {
    let fixture = Fixture::new();
    let whole = vec![7; 5_000];
    let shop = behind(
        fixture.layer().max_response_bytes(1_000),
        &fixture,
        Response::new(Body::from(whole.clone())),
    );
    assert_eq!(send(&shop, order("")).await.body, whole);
    is_lost(&fixture, &shop).await;
    let unsaved = fixture
        .events
        .count("unsaved: it is larger than 1000 bytes");
    assert_eq!(unsaved, 1, "{:?}", fixture.events.all());
}

#[tokio::test]
async fn a_response_without_a_known_length_is_read_up_to_the_limit_only() {
    let fixture = Fixture::new();
    let (source, body) = frames();
    let layer = fixture.layer().max_response_bytes(1_000);
    let shop = behind(layer, &fixture, Response::new(body));
    for _ in 0..11 {
        source.send(data(vec![7; 100])).unwrap();
    }
    // It is not at its end, and is passed on all the same.
    let mut response = call(&shop, order("")).await;
    is_lost(&fixture, &shop).await;
    source.send(data("the end")).unwrap();
    drop(source);
    let mut told = Vec::new();
    while let Some(data) = next(&mut response).await {
        told.extend(data.unwrap());
    }
    assert_eq!(told, [&[7; 1_100][..], b"the end"].concat());
}

/// All stored bytes count, status and headers too. A page of the web is a few hundred KiB, and a list that an API
/// answers some MiB. The limit of an engine's values is another one.
#[tokio::test]
async fn a_response_up_to_the_limit_is_stored() {
    for (limit, of_values, bytes, is_stored) in [
        (Some(100), None, 40, true),
        (Some(100), None, 99, false),
        (None, None, 300 << 10, true),
        (None, None, 4_000_000, true),
        (None, None, 4 << 20, false),
        (None, Some(5 << 20), (5 << 20) - 100, true),
        (None, Some(10), 1_000, true),
    ] {
        let fixture = Fixture::with(|engine| {
            let of_values = of_values.into_iter();
            of_values.fold(engine, EngineBuilder::max_value_bytes)
        });
        let layer = fixture.layer();
        let layer = limit
            .into_iter()
            .fold(layer, IdempotencyLayer::max_response_bytes);
        let response = Response::new(Body::from(vec![7; bytes]));
        let shop = behind(layer, &fixture, response);
        assert_eq!(send(&shop, order("")).await.body.len(), bytes);
        if is_stored {
            let again = send(&shop, order("")).await;
            assert!(again.is_replayed(), "{bytes}: {:?}", again.headers);
            assert!(again.body == vec![7; bytes]);
        } else {
            is_lost(&fixture, &shop).await;
        }
    }
}

/// A response that the store would not read back is not written.
#[tokio::test]
async fn redis_may_take_less() {
    let (_server, store) = started().await;
    takes_less(store, 8_000_000, 8 << 20).await;
}

/// The server refuses an answer longer than its packets, at each attempt: the body would run again after the lease.
#[tokio::test]
async fn mariadb_may_take_less() {
    let server = MariaDbServer::start();
    server.execute("SET GLOBAL max_allowed_packet = 1048576");
    let store = connect::<MySql>(server.url()).await;
    store.migrate().await.unwrap();
    takes_less(store, 1_040_000, 1 << 20).await;
}

async fn takes_less(store: impl Store, most: usize, more: usize) {
    let engine = engine(store);
    for (bytes, is_stored) in [(most, true), (more, false)] {
        let fixture = Fixture::new();
        let layer = IdempotencyLayer::public(&engine, "shop.api");
        let response = Response::new(Body::from(vec![7; bytes]));
        let shop = behind(layer.max_response_bytes(60 << 20), &fixture, response);
        let ask = || with_key(format!("\"{bytes}\""), "");
        assert_eq!(send(&shop, ask()).await.body.len(), bytes);
        let again = send(&shop, ask()).await;
        if is_stored {
            assert!(again.is_replayed() && again.body == vec![7; bytes]);
        } else {
            assert_eq!(again.problem(), (500, "answer-lost"));
        }
    }
}

#[tokio::test]
async fn a_response_that_is_not_stored_is_not_read() {
    let fixture = Fixture::new();
    let (source, body) = frames();
    let refused = Response::builder().status(400).body(body).unwrap();
    let shop = behind(fixture.layer(), &fixture, refused);
    let mut response = call(&shop, order("")).await;
    assert_eq!(fixture.events.count("released"), 1);
    source.send(data("mend it")).unwrap();
    assert_eq!(next(&mut response).await.unwrap().unwrap(), b"mend it");
}

async fn breaks_off(policy: StatusPolicy) -> (Fixture, Router) {
    let fixture = Fixture::new();
    let (source, body) = frames();
    let layer = fixture.layer().status_policy(policy);
    let shop = behind(layer, &fixture, Response::new(body));
    source.send(data("half of ")).unwrap();
    let broken = io::Error::from(io::ErrorKind::BrokenPipe);
    source.send(Err(broken)).unwrap();
    let mut response = call(&shop, order("")).await;
    assert_eq!(next(&mut response).await.unwrap().unwrap(), b"half of ");
    assert!(next(&mut response).await.unwrap().is_err());
    assert!(next(&mut response).await.is_none());
    (fixture, shop)
}

#[tokio::test]
async fn a_response_that_breaks_off_is_unknown() {
    for policy in [StatusPolicy::careful(), StatusPolicy::draft()] {
        let (fixture, shop) = breaks_off(policy).await;
        let again = send(&shop, order("")).await;
        assert_eq!(again.problem(), (500, "outcome-unknown"));
        assert_eq!(fixture.runs(), 1);
    }
    let bold = StatusPolicy::careful().ambiguous(KeyVerdict::Release);
    let (fixture, _) = breaks_off(bold).await;
    assert_eq!(fixture.events.count("released"), 1);
}

/// Over HTTP/1.1, only announced trailers arrive, after a body in chunks.
#[tokio::test]
async fn trailers_reach_the_client_the_first_time_and_again() {
    let fixture = Fixture::new();
    let handler = post(|| async {
        let (source, body) = frames();
        let mut trailers = HeaderMap::new();
        trailers.insert("repr-digest", HeaderValue::from_static("7"));
        trailers.insert("server-timing", HeaderValue::from_static("db"));
        source.send(data("tea")).unwrap();
        source.send(Ok(Frame::trailers(trailers))).unwrap();
        ([("trailer", "repr-digest, server-timing")], body)
    });
    let server = Server::start(routed(handler, fixture.layer())).await;
    for timings in [1, 0] {
        let mut client = server.connect().await;
        let request = format!(
            "POST /orders HTTP/1.1\r\nHost: shop\r\nTE: trailers\r\nConnection: close, TE\r\n\
             Idempotency-Key: {KEY}\r\nContent-Length: 0\r\n\r\n"
        );
        client.write(request.as_bytes()).await;
        let response = String::from_utf8(client.rest().await).unwrap();
        let end = "\r\n3\r\ntea\r\n0\r\nrepr-digest: 7\r\n";
        assert!(response.contains(end), "{response}");
        let timed = response.matches("server-timing: db").count();
        assert_eq!(timed, timings, "{response}");
    }
    let events = &fixture.events;
    assert_eq!(events.count("replayed"), 1, "{:?}", events.all());
}

/// A handler passes on another server's response, which was sent in chunks. `ask` accepts no chunks.
#[tokio::test]
async fn a_response_in_chunks_is_sent_with_its_length_once_it_is_buffered() {
    let fixture = Fixture::new();
    let (source, body) = frames();
    source.send(data("tea")).unwrap();
    drop(source);
    let chunked = Response::builder().header("transfer-encoding", "chunked");
    let shop = behind(fixture.layer(), &fixture, chunked.body(body).unwrap());
    let server = Server::start(shop).await;
    for is_replayed in [false, true] {
        let answer = server.ask(raw(KEY, "")).await;
        assert_eq!(answer.replay(), (is_replayed, "tea"));
    }
}

/// A stream of declared length has the headers of its handler.
#[tokio::test]
async fn a_response_that_is_not_buffered_keeps_its_transfer_encoding() {
    for (of_type, is_kept) in [("text/plain", false), ("text/event-stream", true)] {
        let fixture = Fixture::new();
        let response = Response::builder().header("content-type", of_type);
        let response = response.header("transfer-encoding", "chunked");
        let response = response.body(Body::from("tea")).unwrap();
        let response = call(&behind(fixture.layer(), &fixture, response), order("")).await;
        let has_it = response.headers().contains_key("transfer-encoding");
        assert_eq!(has_it, is_kept, "{of_type}");
    }
}
