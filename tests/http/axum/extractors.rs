//! Where the key of a request is found.

use axum::Router;
use axum::extract::{Extension, FromRequestParts};
use axum::routing::post;
use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer, KeyRules, Problem};
use idem_runtime::store::memory::MemoryStore;

use crate::client::{Reply, request, send};
use crate::shop::Server;

async fn required(IdempotencyKey(key): IdempotencyKey) -> String {
    key
}

async fn optional(key: Option<IdempotencyKey>) -> String {
    key.map_or_else(|| "none".to_owned(), |key| key.0)
}

async fn documented(key: Result<IdempotencyKey, Problem>) -> Result<String, Problem> {
    key.map(|key| key.0)
        .map_err(|problem| problem.documented_at("https://shop.test/keys"))
}

fn routes() -> Router {
    Router::new()
        .route("/required", post(required))
        .route("/optional", post(optional))
        .route("/documented", post(documented))
}

async fn ask(routes: Router, path: &str, key: Option<&str>) -> Reply {
    let server = Server::start(routes).await;
    let mut request = request(Method::POST, path);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    send(server.at, request.body(Full::<Bytes>::default()).unwrap()).await
}

#[tokio::test]
async fn it_is_read_from_the_header() {
    for path in ["/required", "/optional", "/documented"] {
        let reply = ask(routes(), path, Some("\"k-1\"")).await;
        assert_eq!((reply.status.as_u16(), &reply.body[..]), (200, &b"k-1"[..]));
    }
}

#[tokio::test]
async fn a_missing_key_is_refused_unless_it_is_optional() {
    ask(routes(), "/required", None)
        .await
        .assert_problem(400, "key-missing");
    assert_eq!(ask(routes(), "/optional", None).await.body, "none");
}

#[tokio::test]
async fn a_bad_key_is_no_missing_key() {
    for path in ["/required", "/optional"] {
        ask(routes(), path, Some("k-1, k-2"))
            .await
            .assert_problem(400, "key-invalid");
    }
}

#[tokio::test]
async fn the_rules_come_from_an_extension() {
    assert_eq!(ask(routes(), "/required", Some("k-1")).await.body, "k-1");
    let routes = routes().layer(Extension(KeyRules::default().bare(false).max_chars(4)));
    for key in ["k-1", "\"k-123\""] {
        let refused = ask(routes.clone(), "/optional", Some(key)).await;
        refused.assert_problem(400, "key-invalid");
    }
}

#[tokio::test]
async fn a_handler_may_add_to_the_problem() {
    let refused = ask(routes(), "/documented", None).await;
    refused.assert_problem(400, "key-missing");
    let link = "<https://shop.test/keys>; rel=\"describedby\"; type=\"text/html\"";
    assert_eq!(refused.header("link"), Some(link));
}

/// A layer in front reads the key once, by its own rules.
#[tokio::test]
async fn the_key_of_the_layer_counts() {
    let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api");
    let layer = layer.keys(KeyRules::default().max_chars(2));
    let refused = ask(routes().layer(layer), "/required", Some("k-1")).await;
    refused.assert_problem(400, "key-invalid");
    let rules = Extension(KeyRules::default().max_chars(2));
    let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api");
    let reply = ask(routes().layer(rules).layer(layer), "/required", Some("k-1")).await;
    assert_eq!(reply.body, "k-1");
}

#[tokio::test]
async fn it_needs_no_state() {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts
        .headers
        .insert("idempotency-key", "\"k\"".parse().unwrap());
    let key = IdempotencyKey::from_request_parts(&mut parts, &())
        .await
        .unwrap();
    assert_eq!(key.as_str(), "k");
    assert!(!format!("{key:?}").contains("\"k\""));
}
