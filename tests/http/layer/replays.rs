//! The first call and its repeats.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path};
use axum::response::{AppendHeaders, IntoResponse};
use axum::routing::post;
use http::{Request, Response, StatusCode};
use idem_runtime::http::{Buffered, IdempotencyKey, IdempotencyLayer};
use idem_runtime::{AnswerSource, codec::StoredAnswer};
use tower::{Layer as _, ServiceExt as _};

use crate::client::{
    Answer, Fixture, KEY, call, data, frames, keyed, of_tenant, order, send, with_key,
};

fn receipt(run: usize) -> impl IntoResponse {
    let headers = AppendHeaders([
        ("location", "/orders/7"),
        ("link", "</a>; rel=next"),
        ("link", "</b>; rel=prev"),
        ("set-cookie", "session=s3cret"),
        ("x-request-id", "one"),
        ("content-type", "application/octet-stream"),
    ]);
    // Not text of any kind.
    let body = vec![0, 0xff, u8::try_from(run).unwrap()];
    (StatusCode::CREATED, headers, body)
}

/// As a repeat of it is to be.
fn replay_of(first: &Answer) -> Answer {
    let mut expected = first.clone();
    for name in ["set-cookie", "x-request-id"] {
        assert!(expected.headers.remove(name).is_some(), "{name}");
    }
    let marked = expected
        .headers
        .insert("idempotent-replayed", "true".parse().unwrap());
    assert!(marked.is_none());
    expected
}

#[tokio::test]
async fn a_repeat_gets_the_first_response() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), receipt);
    let first = send(&shop, order("tea")).await;
    assert_eq!(
        (first.status, &first.body[..]),
        (StatusCode::CREATED, &[0, 0xff, 1][..])
    );
    assert_eq!(
        first.headers["set-cookie"], "session=s3cret",
        "the first keeps all"
    );
    for _ in 0..3 {
        assert_eq!(send(&shop, order("tea")).await, replay_of(&first));
    }
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn a_compressed_and_encrypted_store_gives_the_same_response() {
    let secret = idem_runtime::codec::EncryptionKeys::new(1, [7; 32]);
    let fixture = Fixture::with(|engine| engine.compress_above(16).encrypt(secret));
    let shop = fixture.orders(fixture.layer(), |_| "tea ".repeat(1_000));
    let first = send(&shop, order("tea")).await;
    let again = send(&shop, order("tea")).await;
    assert!(again.is_replayed());
    assert_eq!((again.status, again.body), (first.status, first.body));
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn another_key_is_another_request() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), receipt);
    send(&shop, order("tea")).await;
    let other = send(&shop, with_key("\"another\"", "tea")).await;
    assert!(!other.is_replayed());
    assert_eq!(fixture.runs(), 2);
}

#[tokio::test]
async fn two_scopes_do_not_see_each_other() {
    let fixture = Fixture::new();
    let layer = fixture.scoped();
    let shop = fixture.orders(layer, receipt);
    // As long as a signed token, and different only at its end.
    let (long, longer) = ("x".repeat(2_000), format!("{}y", "x".repeat(2_000)));
    for (runs, tenant) in ["acme", "globex", &long, &longer].into_iter().enumerate() {
        let order = || of_tenant(tenant, order("tea"));
        assert!(!send(&shop, order()).await.is_replayed());
        assert!(send(&shop, order()).await.is_replayed());
        assert_eq!(fixture.runs(), runs + 1);
    }
}

#[tokio::test]
async fn other_methods_pass_with_and_without_a_key() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    for runs in 1..=2 {
        let keyed = Request::get("/orders").header("idempotency-key", KEY);
        let answer = send(&shop, keyed.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.body, runs.to_string());
        assert!(!answer.is_replayed());
    }
    let bare = send(&shop, Request::get("/orders").body(Body::empty()).unwrap());
    assert_eq!(bare.await.body, "3");
    assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
}

#[tokio::test]
async fn the_handler_gets_the_key_and_the_client_how_it_came_about() {
    let fixture = Fixture::new();
    let name = |Extension(key): Extension<IdempotencyKey>| async move { key.0 };
    let shop = Router::new()
        .route("/orders", post(name))
        .layer(fixture.layer());
    let first = call(&shop, order("")).await;
    assert_eq!(first.extensions().get(), Some(&AnswerSource::Executed));
    let again = send(&shop, order("")).await;
    assert_eq!(again.body, KEY.trim_matches('"'));
    let again = call(&shop, order("")).await;
    assert_eq!(again.extensions().get(), Some(&AnswerSource::Replayed));
}

#[tokio::test]
async fn a_body_reaches_the_handler_as_it_was_sent() {
    let fixture = Fixture::new();
    let echo = |body: Bytes| async { body };
    let shop = Router::new()
        .route("/orders", post(echo))
        .layer(fixture.layer());
    let whole: Vec<u8> = (0..50_000_u32).flat_map(u32::to_be_bytes).collect();
    let (source, body) = frames();
    // Large and small pieces, and empty ones.
    for (index, piece) in whole.chunks(997).enumerate() {
        for piece in piece.chunks(if index % 2 == 0 { 1_000 } else { 7 }) {
            source.send(data(piece.to_vec())).unwrap();
            source.send(data("")).unwrap();
        }
    }
    drop(source);
    assert_eq!(send(&shop, order(body)).await.body, whole);
    // The same bytes in one piece are the same request.
    let again = send(&shop, order(whole.clone())).await;
    assert!(again.is_replayed());
    assert_eq!(again.body, whole);
}

#[tokio::test]
async fn nested_routers_differ_by_the_path_of_the_request() {
    let fixture = Fixture::new();
    let echo = |Path(id): Path<u32>| async move { id.to_string() };
    let orders = Router::new()
        .route("/{id}", post(echo))
        .layer(fixture.layer());
    let shop = Router::new()
        .nest("/teas", orders.clone())
        .nest("/coffees", orders);
    let of = |path: &str| keyed(path).body(Body::empty()).unwrap();
    assert_eq!(send(&shop, of("/teas/1")).await.body, "1");
    assert!(send(&shop, of("/teas/1")).await.is_replayed());
    let other = send(&shop, of("/coffees/1")).await;
    assert_eq!(other.problem(), (422, "key-reused"));
}

#[tokio::test]
async fn it_goes_around_routes_and_method_routers() {
    let fixture = Fixture::new();
    let counted = || {
        let fixture = fixture.clone();
        move || async move { fixture.run().to_string() }
    };
    let shop = Router::new()
        .route("/by-method", post(counted()).layer(fixture.layer()))
        .route("/by-route", post(counted()))
        .route_layer(IdempotencyLayer::public(&fixture.engine, "shop.routes"));
    for path in ["/by-method", "/by-route"] {
        let request = || {
            let key = format!("{path:?}");
            let request = Request::post(path).header("idempotency-key", key);
            request.body(Body::empty()).unwrap()
        };
        let first = send(&shop, request()).await;
        let again = send(&shop, request()).await;
        assert!(!first.is_replayed() && again.is_replayed(), "{path}");
        assert_eq!(first.body, again.body);
    }
    assert_eq!(fixture.runs(), 2);
}

/// A service of tower that is not `Unpin`, nor are its bodies.
#[tokio::test]
async fn it_goes_around_a_plain_service() {
    let fixture = Fixture::new();
    let counter = fixture.clone();
    let service = tower::service_fn(move |request: Request<Buffered<Body>>| {
        let run = counter.run();
        let length = http_body::Body::size_hint(request.body()).exact();
        async move { Ok::<_, String>(Response::new(Body::from(format!("{run}: {length:?}")))) }
    });
    let service = fixture.layer().layer(service);
    let ask = async || {
        let response = service.clone().oneshot(order("tea")).await.unwrap();
        let length = response.headers().get("content-length").cloned();
        let body = axum::body::to_bytes(Body::new(response.into_body()), 100).await;
        (body.unwrap(), length)
    };
    assert_eq!(ask().await, ("1: Some(3)".into(), None));
    let length = Some(http::HeaderValue::from_static("10"));
    assert_eq!(ask().await, ("1: Some(3)".into(), length));
}

/// A record of the layer is no JSON, and says so.
#[tokio::test]
async fn a_stored_answer_is_read_as_no_other_type() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |_| "1");
    send(&shop, order("")).await;
    let key = KEY.trim_matches('"');
    let begun = fixture.engine.operation("shop.api").key(key).begin().await;
    let Ok(idem_runtime::claim::Acquired::Replay(stored)) = begun else {
        panic!("not done: {begun:?}");
    };
    let stored: StoredAnswer = stored;
    let error = stored.decode::<u32>().unwrap_err();
    assert_eq!(*error.kind(), idem_runtime::ErrorKind::Undecodable);
}
