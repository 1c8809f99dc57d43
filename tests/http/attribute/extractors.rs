//! Where the key of a request is found.

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request};
use axum::routing::post;
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer, KeyRules, Problem};
use idem_runtime::store::memory::MemoryStore;

use crate::client::{Answer, send};

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

async fn ask(routes: &Router, path: &str, key: Option<&str>) -> Answer {
    let mut request = Request::post(path);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    send(routes, request.body(Body::empty()).unwrap()).await
}

/// With the rules of an extension, or of a layer in front, which reads the key once.
#[tokio::test]
async fn the_key_is_that_of_the_header_by_the_rules_of_the_service() {
    let layer = || IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api");
    let short = || KeyRules::default().max_chars(2);
    let rules = Extension(KeyRules::default().bare(false).max_chars(4));
    let plain = routes();
    let extended = routes().layer(rules);
    let layered = routes().layer(layer().keys(short()));
    let over = routes().layer(Extension(short())).layer(layer());
    let (invalid, missing) = (Err("key-invalid"), Err("key-missing"));
    for (row, routes, path, key, expected) in [
        ("quoted", &plain, "/required", Some("\"k-1\""), Ok("k-1")),
        ("quoted", &plain, "/optional", Some("\"k-1\""), Ok("k-1")),
        ("quoted", &plain, "/documented", Some("\"k-1\""), Ok("k-1")),
        ("bare", &plain, "/required", Some("k-1"), Ok("k-1")),
        ("missing", &plain, "/required", None, missing),
        ("missing", &plain, "/documented", None, missing),
        ("missing", &plain, "/optional", None, Ok("none")),
        ("bad", &plain, "/required", Some("k-1, k-2"), invalid),
        ("bad", &plain, "/optional", Some("k-1, k-2"), invalid),
        (
            "bare by a rule",
            &extended,
            "/optional",
            Some("k-1"),
            invalid,
        ),
        (
            "long by a rule",
            &extended,
            "/optional",
            Some("\"k-123\""),
            invalid,
        ),
        (
            "long by the layer",
            &layered,
            "/required",
            Some("k-1"),
            invalid,
        ),
        (
            "the layer's rules first",
            &over,
            "/required",
            Some("k-1"),
            Ok("k-1"),
        ),
    ] {
        let answer = ask(routes, path, key).await;
        match expected {
            Ok(key) => assert_eq!(answer.said(), (200, key), "{row} {path}"),
            Err(code) => assert_eq!(answer.problem(), (400, code), "{row} {path}"),
        }
    }
    let refused = ask(&plain, "/documented", None).await;
    let link = "<https://shop.test/keys>; rel=\"describedby\"; type=\"text/html\"";
    assert_eq!(refused.header("link"), Some(link));
}
