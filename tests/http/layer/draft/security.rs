//! Section 5: what strangers try.

use axum::extract::Request;
use axum::response::IntoResponse as _;
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyLayer, KeyRules};
use idem_runtime::store::memory::MemoryStore;
use idem_tests::faulty::Faulty;

use crate::client::{Fixture, KEY, of_tenant, send, tenant, with_key};

fn of(tenant: Option<&str>, key: &str) -> Request {
    let request = with_key(key, "tea");
    match tenant {
        Some(tenant) => of_tenant(tenant, request),
        None => request,
    }
}

/// "Always validate the key as per its published specification before processing any request."
#[tokio::test]
async fn section_5_a_key_is_validated_before_anything_is_asked() {
    let (fixture, store) = (Fixture::new(), Faulty::new(MemoryStore::new()));
    let layer = IdempotencyLayer::public(Engine::new(store.clone()), "shop.api");
    let layer = layer.keys(KeyRules::default().bare(false));
    let shop = fixture.orders(layer, |run| run.to_string());
    let injections = [
        "\"a\"; DROP TABLE idem; --",
        "' OR 1=1",
        "*",
        "a\"b",
        "\u{202e}\"a\"",
        "{\"$gt\":\"\"}",
    ];
    for key in injections {
        let refused = send(&shop, of(None, key)).await;
        assert_eq!(refused.problem(), (400, "key-invalid"), "{key}");
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(!text.contains("DROP") && !text.contains("1=1"), "{text}");
    }
    assert!(store.log().is_empty(), "{:?}", store.log());
    assert_eq!(fixture.runs(), 0);
}

/// "Injection attacks": a key that is valid is data, whatever it is made of.
#[tokio::test]
async fn section_5_a_valid_key_is_never_more_than_data() {
    let fixture = Fixture::new();
    let layer = IdempotencyLayer::scoped(&fixture.engine, "shop.api", tenant);
    let shop = fixture.orders(layer, |run| run.to_string());
    // What would be the key of another tenant, operation or record if the parts were put side by side.
    let keys = [
        "\"a\"",
        "\"a:b\"",
        "\"b:a\"",
        "\"acme:a\"",
        "\"acme/a\"",
        "\"shop.api:acme:a\"",
        "\"*\"",
        "\"a*\"",
        "\"{a}\"",
        "\"'; DROP TABLE idem; --\"",
        "\"..\"",
        "\"%00\"",
        "\"a%0d%0a\"",
    ];
    for (run, key) in (1..).zip(keys) {
        let first = send(&shop, of(Some("acme"), key)).await;
        assert_eq!(first.body, run.to_string(), "{key}");
    }
    for key in keys {
        assert!(
            send(&shop, of(Some("acme"), key)).await.is_replayed(),
            "{key}"
        );
    }
    assert_eq!(fixture.runs(), keys.len());
}

/// "Data leaks", and "implement a unique composite key as the idempotent cache lookup key".
#[tokio::test]
async fn section_5_no_client_gets_the_answer_of_another() {
    let fixture = Fixture::new();
    let layer = IdempotencyLayer::scoped(&fixture.engine, "shop.api", tenant);
    let shop = fixture.orders(layer, |run| format!("secret {run}").into_response());
    assert_eq!(send(&shop, of(Some("acme"), KEY)).await.body, "secret 1");
    // The same key and request, and another tenant: neither an answer nor a sign that there is one.
    let other = send(&shop, of(Some("eve"), KEY)).await;
    assert_eq!(other.body, "secret 2");
    assert!(!other.is_replayed());
    let stranger = send(&shop, of(None, KEY)).await;
    assert_eq!(stranger.problem(), (403, "caller-unknown"));
    // Parts that are the same once they are put side by side.
    let (one, two) = (of(Some("acm"), "\"ea\""), of(Some("acme"), "\"a\""));
    assert_eq!(send(&shop, one).await.body, "secret 3");
    assert_eq!(send(&shop, two).await.body, "secret 4");
    assert!(send(&shop, of(Some("acme"), KEY)).await.is_replayed());
}
