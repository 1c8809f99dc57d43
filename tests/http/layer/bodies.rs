//! Responses that are too large, that are streams, and that break off.

use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use http::{HeaderMap, HeaderValue, Method};
use http_body::{Body as _, Frame};
use idem_harness::{MariaDbServer, PostgresServer, RedisServer, TestDir};
use idem_runtime::http::{Buffered, IdempotencyLayer, KeyVerdict, StatusPolicy};
use idem_runtime::store::Store;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::{MySqlStore, PostgresStore, SqliteStore};
use idem_runtime::{Engine, EngineBuilder, codec::EncryptionKeys};
use tower::{Layer as _, ServiceExt as _};

use crate::client::{
    Fixture, KEY, LOST, call, data, frames, keyed, order, patiently, routed, send, with_key,
};
use crate::server::Server;

/// A router behind this layer that answers with this once, and fails the test at a second call.
fn behind(layer: IdempotencyLayer, fixture: &Fixture, response: Response) -> Router {
    let counter = fixture.clone();
    let response = Arc::new(Mutex::new(Some(response)));
    let handler = post(move || async move {
        counter.run();
        response.lock().unwrap().take().expect("it is asked once")
    });
    routed(handler, layer)
}

/// The next data of a response.
async fn next(response: &mut Response) -> Option<Result<Vec<u8>, axum::Error>> {
    let body = response.body_mut();
    let mut body = std::pin::pin!(body);
    let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx));
    let frame = patiently("a frame", frame).await?;
    Some(frame.map(|frame| frame.into_data().map(Vec::from).unwrap_or_default()))
}

async fn is_lost(fixture: &Fixture, shop: &Router) {
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

/// Compressed and encrypted, too: a response written under the limit is read, whatever the engine keeps of
/// values.
#[tokio::test]
async fn a_response_of_many_mib_comes_back_however_it_is_stored() {
    let random: Vec<u8> = (0..9_u32 << 18)
        .flat_map(|number| number.wrapping_mul(0x9e37_79b9).to_be_bytes())
        .collect();
    let keys = || EncryptionKeys::new(1, [7; 32]);
    for whole in [vec![7; 9 << 20], random] {
        let fixture = Fixture::with(|engine| engine.compress_above(100).encrypt(keys()));
        let response = Response::new(Body::from(whole.clone()));
        let limit = whole.len() + 100;
        let shop = behind(
            fixture.layer().max_response_bytes(limit),
            &fixture,
            response,
        );
        send(&shop, order("")).await;
        let again = send(&shop, order("")).await;
        assert!(again.is_replayed(), "{:?}", again.headers);
        assert!(again.body == whole);
    }
}

/// The largest response that is stored by default, in a database as it is installed.
async fn fits<S: Store>(store: S) {
    let (fixture, engine) = (Fixture::new(), Engine::new(store));
    let layer = IdempotencyLayer::public(&engine, "shop.api");
    // With its status, the counts of headers and trailers, and a tag.
    let whole = vec![7; (4 << 20) - 20];
    let response = Response::new(Body::from(whole.clone()));
    let shop = behind(layer, &fixture, response);
    send(&shop, order("")).await;
    let again = send(&shop, order("")).await;
    assert!(again.is_replayed(), "{:?}", again.headers);
    assert!(again.body == whole);
}

#[tokio::test]
async fn each_database_takes_a_response_of_some_mib() {
    let dir = TestDir::new("large").unwrap();
    let url = format!("sqlite:{}", dir.path().join("shop.db").display());
    let store = SqliteStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    fits(store).await;
    let server = PostgresServer::start();
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    fits(store).await;
    let server = MariaDbServer::start();
    let store = MySqlStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    fits(store).await;
}

/// A response that the store would not read back is not written.
#[tokio::test]
async fn redis_may_take_less() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    takes_less(store, 8_000_000, 8 << 20).await;
}

/// The server refuses an answer longer than its packets, at each attempt: the body would run again after the lease.
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
async fn a_stream_reaches_its_client_bit_by_bit() {
    for of_type in [
        "text/event-stream",
        "Text/Event-Stream; charset=utf-8",
        "multipart/x-mixed-replace; boundary=b",
    ] {
        let fixture = Fixture::new();
        let (source, body) = frames();
        let stream = Response::builder().header("content-type", of_type);
        let shop = behind(fixture.layer(), &fixture, stream.body(body).unwrap());
        source.send(data("event 1")).unwrap();
        let mut response = call(&shop, order("")).await;
        assert_eq!(next(&mut response).await.unwrap().unwrap(), b"event 1");
        is_lost(&fixture, &shop).await;
        assert_eq!(fixture.events.count("unsaved: it is a stream"), 1);
        source.send(data("event 2")).unwrap();
        assert_eq!(next(&mut response).await.unwrap().unwrap(), b"event 2");
        drop(source);
        assert!(next(&mut response).await.is_none());
    }
}

#[tokio::test]
async fn an_upgrade_is_not_repeated() {
    let fixture = Fixture::new();
    let upgrade = Response::builder().status(101).body(Body::empty());
    let shop = behind(fixture.layer(), &fixture, upgrade.unwrap());
    assert_eq!(send(&shop, order("")).await.status, 101);
    is_lost(&fixture, &shop).await;
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

/// `HEAD`, of a service that is not axum's: its response has a length and no body.
#[tokio::test]
async fn the_length_of_a_response_to_head_is_not_that_of_its_body() {
    let fixture = Fixture::new();
    let service = tower::service_fn(|_: http::Request<Buffered<Body>>| async {
        let response = Response::builder().header("content-length", "7");
        Ok::<_, std::convert::Infallible>(response.body(Body::empty()).unwrap())
    });
    let service = fixture.layer().methods([Method::HEAD]).layer(service);
    for replayed in [false, true] {
        let request = keyed("/orders").method(Method::HEAD);
        let request = request.body(Body::empty()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        let headers = response.headers();
        assert_eq!(headers.contains_key("idempotent-replayed"), replayed);
        assert!(
            headers
                .get("content-length")
                .is_none_or(|length| length == "7"),
            "{headers:?}"
        );
    }
}

/// Over HTTP/1.1 trailers come after a body in chunks, and only announced ones.
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
