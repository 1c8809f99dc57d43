//! Responses that are too large, that are streams, and that break off.

use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::{Body as _, Frame};
use idem_harness::{MariaDbServer, PostgresServer, RedisServer, TestDir};
use idem_runtime::http::{IdempotencyLayer, StatusPolicy, Verdict};
use idem_runtime::store::Store;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::{MySqlStore, PostgresStore, SqliteStore};
use idem_runtime::{EncryptionKeys, Engine};

use crate::client::{Desk, Source, call, data, frames, order, send, soon};

/// A router that answers with this once, and fails the test if it is asked again.
fn once(desk: &Desk, policy: StatusPolicy, response: Response) -> Router {
    behind(desk.layer().status_policy(policy), desk, response)
}

/// The same behind this layer.
fn behind(layer: IdempotencyLayer, desk: &Desk, response: Response) -> Router {
    let desk_of_handler = desk.clone();
    let response = Arc::new(Mutex::new(Some(response)));
    let handler = move || async move {
        desk_of_handler.run();
        response.lock().unwrap().take().expect("it is asked once")
    };
    Router::new().route("/orders", post(handler)).layer(layer)
}

/// The next data of a response.
async fn next(response: &mut Response) -> Option<Result<Vec<u8>, axum::Error>> {
    let body = response.body_mut();
    let mut body = std::pin::pin!(body);
    let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx));
    let frame = soon("a frame", frame).await?;
    Some(frame.map(|frame| frame.into_data().map(Vec::from).unwrap_or_default()))
}

async fn is_lost(desk: &Desk, shop: &Router) {
    for _ in 0..2 {
        let again = send(shop, order("")).await;
        assert_eq!(again.problem(), (500, "answer-lost".to_owned()));
    }
    assert_eq!(desk.runs(), 1);
}

#[tokio::test]
async fn a_response_that_is_too_large_reaches_its_client_and_is_not_stored() {
    let desk = Desk::new();
    let whole = vec![7; 5_000];
    let shop = behind(
        desk.layer().max_response_bytes(1_000),
        &desk,
        Response::new(Body::from(whole.clone())),
    );
    assert_eq!(send(&shop, order("")).await.body, whole);
    is_lost(&desk, &shop).await;
    let unsaved = desk.events.count("unsaved: it is larger than 1000 bytes");
    assert_eq!(unsaved, 1, "{:?}", desk.events.all());
}

#[tokio::test]
async fn a_response_without_a_known_length_is_read_up_to_the_limit_only() {
    let desk = Desk::new();
    let (source, body) = frames();
    let layer = desk.layer().max_response_bytes(1_000);
    let shop = behind(layer, &desk, Response::new(body));
    for _ in 0..11 {
        source.send(data(vec![7; 100])).unwrap();
    }
    // It is not at its end, and is passed on all the same.
    let mut response = call(&shop, order("")).await;
    is_lost(&desk, &shop).await;
    source.send(data("the end")).unwrap();
    drop(source);
    let mut told = Vec::new();
    while let Some(data) = next(&mut response).await {
        told.extend(data.unwrap());
    }
    assert_eq!(told, [&[7; 1_100][..], b"the end"].concat());
}

#[tokio::test]
async fn the_limit_counts_what_is_stored_besides_the_body() {
    for (length, is_stored) in [(40, true), (99, false)] {
        let desk = Desk::new();
        let response = Response::new(Body::from(vec![7; length]));
        let shop = behind(desk.layer().max_response_bytes(100), &desk, response);
        assert_eq!(send(&shop, order("")).await.body.len(), length);
        if is_stored {
            assert!(send(&shop, order("")).await.is_replayed());
        } else {
            is_lost(&desk, &shop).await;
        }
    }
}

/// A page of the web is a few hundred KiB, and a list that an API answers some MiB.
#[tokio::test]
async fn a_response_of_some_mib_is_stored() {
    for (bytes, is_stored) in [(300 << 10, true), (4_000_000, true), (4 << 20, false)] {
        let desk = Desk::new();
        let response = Response::new(Body::from(vec![7; bytes]));
        let shop = behind(desk.layer(), &desk, response);
        assert_eq!(send(&shop, order("")).await.body.len(), bytes);
        if is_stored {
            let again = send(&shop, order("")).await;
            assert!(again.is_replayed(), "{bytes}: {:?}", again.headers);
            assert_eq!(again.body, vec![7; bytes]);
        } else {
            is_lost(&desk, &shop).await;
        }
    }
}

/// What an engine keeps of a value is kept of a response as well, and what it does not is no limit of responses.
#[tokio::test]
async fn the_limit_of_values_is_another_one() {
    for (max_value_bytes, bytes) in [(5 << 20, (5 << 20) - 100), (10, 1_000)] {
        let desk = Desk::with(|engine| engine.max_value_bytes(max_value_bytes));
        let response = Response::new(Body::from(vec![7; bytes]));
        let shop = behind(desk.layer(), &desk, response);
        send(&shop, order("")).await;
        assert!(send(&shop, order("")).await.is_replayed(), "{bytes}");
    }
}

/// Compressed and encrypted, too: what is written under the limit is read, whatever the engine keeps of values.
#[tokio::test]
async fn a_response_of_many_mib_comes_back_however_it_is_stored() {
    let random: Vec<u8> = (0..9_u32 << 18)
        .flat_map(|number| number.wrapping_mul(0x9e37_79b9).to_be_bytes())
        .collect();
    let keys = || EncryptionKeys::new(1, [7; 32]);
    for whole in [vec![7; 9 << 20], random] {
        let desk = Desk::with(|engine| engine.compress_above(100).encrypt(keys()));
        let response = Response::new(Body::from(whole.clone()));
        let limit = whole.len() + 100;
        let shop = behind(desk.layer().max_response_bytes(limit), &desk, response);
        send(&shop, order("")).await;
        let again = send(&shop, order("")).await;
        assert!(again.is_replayed(), "{:?}", again.headers);
        assert!(again.body == whole);
    }
}

/// The largest response that is stored by default, in a database as it is installed.
async fn fits<S: Store>(store: S) {
    let (desk, engine) = (Desk::new(), Engine::new(store));
    let layer = IdempotencyLayer::public(&engine, "shop.api");
    // With its status, the counts of headers and trailers, and a tag.
    let whole = vec![7; (4 << 20) - 20];
    let response = Response::new(Body::from(whole.clone()));
    let shop = behind(layer, &desk, response);
    send(&shop, order("")).await;
    let again = send(&shop, order("")).await;
    assert!(again.is_replayed(), "{:?}", again.headers);
    assert!(again.body == whole);
}

#[tokio::test]
async fn sqlite_takes_a_response_of_some_mib() {
    let dir = TestDir::new("large").unwrap();
    let url = format!("sqlite:{}", dir.path().join("shop.db").display());
    let store = SqliteStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    fits(store).await;
}

#[tokio::test]
async fn postgres_takes_a_response_of_some_mib() {
    let server = PostgresServer::start();
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    fits(store).await;
}

#[tokio::test]
async fn mariadb_takes_a_response_of_some_mib() {
    let server = MariaDbServer::start();
    let store = MySqlStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    fits(store).await;
}

/// What a store would not read back is not written.
#[tokio::test]
async fn redis_may_take_less() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    takes_less(store, 8_000_000, 8 << 20).await;
}

/// The server refuses what is longer than its packets, at each attempt: the body would run again after the lease.
#[tokio::test]
async fn mariadb_may_take_less() {
    let server = MariaDbServer::start();
    server.execute("SET GLOBAL max_allowed_packet = 1048576");
    let store = MySqlStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    takes_less(store, 1_040_000, 1 << 20).await;
}

async fn takes_less(store: impl Store, most: usize, more: usize) {
    let engine = Engine::new(store);
    let desk = Desk::new();
    for (key, bytes, is_stored) in [("a", most, true), ("b", more, false)] {
        let layer = IdempotencyLayer::public(&engine, "shop.api").max_response_bytes(60 << 20);
        let response = Response::new(Body::from(vec![7; bytes]));
        let shop = behind(layer, &desk, response);
        let ask = || {
            let request =
                http::Request::post("/orders").header("idempotency-key", format!("\"{key}\""));
            request.body(Body::empty()).unwrap()
        };
        assert_eq!(send(&shop, ask()).await.body.len(), bytes);
        let again = send(&shop, ask()).await;
        if is_stored {
            assert!(again.is_replayed() && again.body == vec![7; bytes]);
        } else {
            assert_eq!(again.problem(), (500, "answer-lost".to_owned()));
        }
    }
}

async fn passes_at_once(of_type: &'static str) {
    let desk = Desk::new();
    let (source, body): (Source, Body) = frames();
    let mut stream = Response::new(body);
    let of_type = HeaderValue::from_static(of_type);
    stream.headers_mut().insert("content-type", of_type);
    let shop = once(&desk, StatusPolicy::default(), stream);
    source.send(data("event 1")).unwrap();
    let mut response = call(&shop, order("")).await;
    assert_eq!(next(&mut response).await.unwrap().unwrap(), b"event 1");
    is_lost(&desk, &shop).await;
    assert_eq!(desk.events.count("unsaved: it is a stream"), 1);
    source.send(data("event 2")).unwrap();
    assert_eq!(next(&mut response).await.unwrap().unwrap(), b"event 2");
    drop(source);
    assert!(next(&mut response).await.is_none());
}

#[tokio::test]
async fn a_stream_reaches_its_client_bit_by_bit() {
    passes_at_once("text/event-stream").await;
    passes_at_once("Text/Event-Stream; charset=utf-8").await;
    passes_at_once("multipart/x-mixed-replace; boundary=b").await;
}

#[tokio::test]
async fn an_upgrade_is_not_repeated() {
    let desk = Desk::new();
    let mut upgrade = Response::new(Body::empty());
    *upgrade.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let shop = once(&desk, StatusPolicy::default(), upgrade);
    assert_eq!(send(&shop, order("")).await.status, 101);
    is_lost(&desk, &shop).await;
}

#[tokio::test]
async fn what_is_not_stored_is_not_read_either() {
    let desk = Desk::new();
    let (source, body) = frames();
    let mut refused = Response::new(body);
    *refused.status_mut() = StatusCode::BAD_REQUEST;
    let shop = once(&desk, StatusPolicy::default(), refused);
    let mut response = call(&shop, order("")).await;
    assert_eq!(desk.events.count("released"), 1);
    source.send(data("mend it")).unwrap();
    assert_eq!(next(&mut response).await.unwrap().unwrap(), b"mend it");
}

async fn breaks_off(policy: StatusPolicy) -> (Desk, Router) {
    let desk = Desk::new();
    let (source, body) = frames();
    let shop = once(&desk, policy, Response::new(body));
    source.send(data("half of ")).unwrap();
    let broken = io::Error::from(io::ErrorKind::BrokenPipe);
    source.send(Err(broken)).unwrap();
    let mut response = call(&shop, order("")).await;
    assert_eq!(next(&mut response).await.unwrap().unwrap(), b"half of ");
    assert!(next(&mut response).await.unwrap().is_err());
    assert!(next(&mut response).await.is_none());
    (desk, shop)
}

#[tokio::test]
async fn nobody_knows_what_a_response_was_to_say_that_breaks_off() {
    for policy in [StatusPolicy::careful(), StatusPolicy::draft()] {
        let (desk, shop) = breaks_off(policy).await;
        let again = send(&shop, order("")).await;
        assert_eq!(again.problem(), (500, "outcome-unknown".to_owned()));
        assert_eq!(desk.runs(), 1);
    }
    let bold = StatusPolicy::careful().ambiguous(Verdict::Release);
    let (desk, _) = breaks_off(bold).await;
    assert_eq!(desk.events.count("released"), 1);
}

#[tokio::test]
async fn trailers_are_repeated() {
    let desk = Desk::new();
    let (source, body) = frames();
    let shop = once(&desk, StatusPolicy::default(), Response::new(body));
    let mut trailers = HeaderMap::new();
    trailers.insert("repr-digest", HeaderValue::from_static("7"));
    trailers.insert("server-timing", HeaderValue::from_static("db"));
    source.send(data("tea")).unwrap();
    source.send(Ok(Frame::trailers(trailers.clone()))).unwrap();
    drop(source);
    for expected in [
        trailers.clone(),
        HeaderMap::from_iter([(
            "repr-digest".parse().unwrap(),
            HeaderValue::from_static("7"),
        )]),
    ] {
        let mut response = call(&shop, order("")).await;
        assert_eq!(next(&mut response).await.unwrap().unwrap(), b"tea");
        let mut body = std::pin::pin!(response.body_mut());
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx));
        let frame = soon("the trailers", frame).await.unwrap().unwrap();
        assert_eq!(frame.into_trailers().unwrap(), expected);
    }
}
