//! Where the key of a request is found.

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request};
use axum::routing::post;
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer, KeyRules, KeySource, Problem, Profile};
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

/// Service, path and key of a request; the handler's key or problem.
const ROWS: &str = r#"plain    | /required   | "k-1"    | k-1
plain    | /optional   | "k-1"    | k-1
plain    | /documented | "k-1"    | k-1
plain    | /required   | k-1      | k-1
plain    | /required   | none     | key-missing
plain    | /documented | none     | key-missing
plain    | /optional   | none     | none
plain    | /required   | k-1, k-2 | key-invalid
plain    | /optional   | k-1, k-2 | key-invalid
extended | /optional   | k-1      | key-invalid
extended | /optional   | "k-123"  | key-invalid
layered  | /required   | k-1      | key-invalid
over     | /required   | k-1      | k-1
drafted  | /required   | k-1      | key-invalid
drafted  | /required   | "k-1"    | k-1
queried  | /required?k=k%2D1 | none | k-1
queried  | /required   | k-1      | key-missing
queried  | /optional   | k-1      | none
queried  | /optional?k | none     | key-invalid
in body  | /optional   | k-1      | key-invalid"#;

/// The rules of an extension, or of a layer that reads once.
#[tokio::test]
async fn the_key_is_that_of_the_header_by_the_rules_of_the_service() {
    let layer = || IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api");
    let short = || KeyRules::default().max_chars(2);
    let rules = Extension(KeyRules::default().bare(false).max_chars(4));
    let plain = routes();
    let extended = routes().layer(rules);
    let layered = routes().layer(layer().keys(short()));
    let over = routes().layer(Extension(short())).layer(layer());
    let profiled = |profile: Profile| routes().layer(Extension(profile));
    let from = |source| profiled(Profile::new("shop").key_source(source));
    let drafted = profiled(Profile::draft());
    let queried = from(KeySource::query("k"));
    let in_body = from(KeySource::json("/k"));
    for row in ROWS.lines() {
        let [service, path, key, expected] =
            row.split(" | ").map(str::trim).collect::<Vec<_>>()[..]
        else {
            panic!("four columns: {row}");
        };
        let service = match service {
            "plain" => &plain,
            "extended" => &extended,
            "layered" => &layered,
            "drafted" => &drafted,
            "queried" => &queried,
            "in body" => &in_body,
            _ => &over,
        };
        let answer = ask(service, path, Some(key).filter(|key| *key != "none")).await;
        match expected {
            "key-invalid" | "key-missing" => assert_eq!(answer.problem(), (400, expected), "{row}"),
            key => assert_eq!(answer.said(), (200, key), "{row}"),
        }
    }
    let refused = ask(&plain, "/documented", None).await;
    let link = "<https://shop.test/keys>; rel=\"describedby\"; type=\"text/html\"";
    assert_eq!(refused.header("link"), Some(link));
}
