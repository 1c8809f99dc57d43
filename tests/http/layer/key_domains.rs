//! The domain in which a key is unique: a caller, path, or method and path.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use http::Method;
use idem_runtime::ErrorKind;
use idem_runtime::http::KeyDomain::{self, Caller, MethodAndPath, Path};
use idem_runtime::http::KeyRules;

use crate::client::{Fixture, KEY, REUSED, keyed, of_tenant, ran, replayed};

fn to(method: Method, uri: &str) -> Request {
    let request = keyed(uri).method(method);
    of_tenant("acme", request.body(Body::from("tea")).unwrap())
}

/// A service with protected paths, also of nested and merged routers.
fn shop(fixture: &Fixture, domain: KeyDomain) -> Router {
    let counter = fixture.clone();
    let handler = any(async move || counter.run().to_string());
    let layer = fixture.scoped().key_domain(domain);
    let all = Router::new()
        .fallback_service(handler.clone())
        .layer(layer.clone());
    let merged = Router::new().route("/v3/orders", handler).layer(layer);
    let nested = Router::new().nest("/shop", all.clone());
    Router::new()
        .nest("/v1", all.clone())
        .nest("/v2", nested.merge(all.clone()))
        .nest_service("/v4", all)
        .merge(merged)
}

/// The first request with the key, and then others with it.
#[tokio::test]
async fn a_key_is_another_one_where_its_domain_ends() {
    let others = [
        (Method::POST, "/v1/orders?a=1", [false, false, false]),
        (Method::PATCH, "/v1/orders", [false, false, true]),
        (Method::POST, "/v1/orders/", [false, true, true]),
        (Method::POST, "/v1/Orders", [false, true, true]),
        (Method::POST, "/v1/%6frders", [false, true, true]),
        (Method::POST, "/v1/%6Frders", [false, true, true]),
        (Method::POST, "/v1//orders", [false, true, true]),
        (Method::POST, "/v2/orders", [false, true, true]),
        (Method::POST, "/v2/shop/orders", [false, true, true]),
        (Method::POST, "/v3/orders", [false, true, true]),
        (Method::POST, "/v4/orders", [false, true, true]),
    ];
    for (at, domain) in [Caller, Path, MethodAndPath].into_iter().enumerate() {
        let fixture = Fixture::new();
        let shop = shop(&fixture, domain);
        let first = |row: &str, seen| (row.to_owned(), to(Method::POST, "/v1/orders"), seen);
        let mut rows = vec![first("the first", ran("1")), first("again", replayed("1"))];
        let mut last = 1;
        for (method, uri, is_apart) in &others {
            let seen = if is_apart[at] {
                last += 1;
                ran(last.to_string().leak())
            } else {
                REUSED
            };
            let row = format!("{domain}: {method} {uri}");
            rows.push((row, to(method.clone(), uri), seen));
        }
        rows.push(first("still", replayed("1")));
        fixture.walk(&shop, rows).await;
    }
}

/// In every domain a caller has its own keys.
#[tokio::test]
async fn another_caller_has_other_keys() {
    for domain in [Caller, Path, MethodAndPath] {
        let fixture = Fixture::new();
        let shop = shop(&fixture, domain);
        let theirs = of_tenant("zeta", to(Method::POST, "/v1/orders"));
        let rows = [
            ("one", to(Method::POST, "/v1/orders"), ran("1")),
            ("the other", theirs, ran("2")),
        ];
        fixture.walk(&shop, rows).await;
    }
}

#[tokio::test]
async fn an_entry_is_found_by_what_is_in_its_domain() {
    let key = KEY.trim_matches('"');
    for (domain, of_put, elsewhere) in [
        (Caller, true, true),
        (Path, true, false),
        (MethodAndPath, false, false),
    ] {
        let fixture = Fixture::new();
        let layer = fixture.scoped().key_domain(domain);
        let of_any_case = layer.clone().keys(KeyRules::default().ignore_case());
        let first = ("first", to(Method::POST, "/v1/orders"), ran("1"));
        fixture.walk(&shop(&fixture, domain), [first]).await;
        let found = async |method: &Method, path| {
            let entry = layer.entry_at(Some("acme"), method, path, key).await;
            let in_capitals = key.to_uppercase();
            let same = of_any_case.entry_at(Some("acme"), method, path, &in_capitals);
            let is_found = entry.unwrap().is_some();
            assert_eq!(same.await.unwrap().is_some(), is_found, "{domain}: {path}");
            is_found
        };
        assert!(found(&Method::POST, "/v1/orders").await, "{domain}");
        assert_eq!(found(&Method::PUT, "/v1/orders").await, of_put, "{domain}");
        assert_eq!(found(&Method::POST, "/orders").await, elsewhere, "{domain}");
        let plain = layer.entry(Some("acme"), key).await;
        match plain {
            Ok(entry) => assert!(entry.is_some() && domain == Caller),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::InvalidKey) && domain != Caller,
                    "{error}"
                );
            }
        }
        let of_nobody = layer.entry_at(None, &Method::POST, "/v1/orders", key).await;
        assert!(matches!(
            of_nobody.unwrap_err().kind(),
            ErrorKind::InvalidKey
        ));
    }
}
