//! Sections 2 to 2.5: what a key is, how long it lives, and what it stands for.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use http::Method;
use idem_runtime::http::KeyRules;

use crate::client::{Fixture, KEY, keyed, order, send, with_key};

fn with(key: &str) -> Request {
    with_key(key, "tea")
}

/// Section 2: "used to make non-idempotent HTTP methods such as POST or PATCH fault-tolerant".
#[tokio::test]
async fn section_2_post_and_patch_are_made_idempotent_and_the_rest_is_left_alone() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    let ask = async |method: Method, key: &str| {
        let request = Request::builder().method(method).uri("/orders");
        let request = request.header("idempotency-key", key);
        send(&shop, request.body(Body::empty()).unwrap()).await
    };
    for (method, key) in [(Method::POST, "\"a\""), (Method::PATCH, "\"b\"")] {
        let first = ask(method.clone(), key).await;
        assert_eq!(ask(method, key).await.body, first.body);
    }
    assert_eq!(fixture.runs(), 2);
    // These are idempotent by themselves (RFC 9110, section 9.2.2).
    let idempotent = [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS];
    for (run, method) in (3..).zip(idempotent) {
        let answer = ask(method, "not a key, and nobody reads it").await;
        assert_eq!(answer.body, run.to_string());
        assert!(!answer.is_replayed());
    }
}

/// Section 2.1: "Idempotency-Key is an Item Structured Header [RFC8941]. Its value MUST be a String." The default
/// accepts a string without quotation marks as well.
#[tokio::test]
async fn section_2_1_the_value_is_a_string_item() {
    let fixture = Fixture::new();
    let strict = KeyRules::default().bare(false);
    let shop = fixture.orders(fixture.layer().keys(strict), |run| run.to_string());
    // A token, numbers, bytes, a boolean, a list, an inner list, a dictionary: other items, or none.
    for item in [
        "a",
        "42",
        "4.2",
        ":YQ==:",
        "?1",
        "\"a\", \"b\"",
        "(\"a\")",
        "a=\"b\"",
    ] {
        let refused = send(&shop, with(item)).await;
        assert_eq!(refused.problem(), (400, "key-invalid"), "{item}");
    }
    assert_eq!(fixture.runs(), 0);
    // The example of the section.
    let example = "\"8e03978e-40d5-43e8-bc93-6894a57f9324\"";
    assert_eq!(send(&shop, with(example)).await.body, "1");
    // All of `sf-string`: every printable character, two of them escaped.
    let printable: String = (' '..='~').collect();
    let escaped = printable.replace('\\', "\\\\").replace('"', "\\\"");
    assert_eq!(send(&shop, with(&format!("\"{escaped}\""))).await.body, "2");
    // Undefined parameters of an item are ignored (RFC 8941, section 3.1.2).
    let again = send(&shop, with(&format!("{example};a=1;b"))).await;
    assert!(again.is_replayed());
}

/// Section 2.1: "Clients MUST NOT include more than one Idempotency-Key header field in the same request."
#[tokio::test]
async fn section_2_1_two_header_fields_are_refused() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    for second in ["\"second\"", KEY] {
        let twice = keyed("/orders").header("idempotency-key", second);
        let refused = send(&shop, twice.body(Body::empty()).unwrap()).await;
        assert_eq!(refused.problem(), (400, "key-invalid"));
    }
    assert_eq!(fixture.runs(), 0);
}

/// Section 2.2: a key "MUST be unique and MUST NOT be reused with another request with a different request payload".
#[tokio::test]
async fn section_2_2_a_key_stands_for_one_request_only() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    let first = send(&shop, order("tea")).await;
    let reused = send(&shop, order("coffee")).await;
    assert_eq!(reused.problem(), (422, "key-reused"));
    // The request that had the key first keeps it.
    assert_eq!(send(&shop, order("tea")).await.body, first.body);
    // Another key, another request, though all else is the same.
    assert_eq!(send(&shop, with("\"another\"")).await.body, "2");
    // Keys are compared character by character.
    assert_eq!(send(&shop, with("\"Another\"")).await.body, "3");
    assert_eq!(send(&shop, with("\"another \"")).await.body, "4");
}

/// Section 2.2: "Uniqueness of the key MUST be defined by the resource owner"; "RECOMMENDED that UUID or a similar
/// random identifier be used".
#[tokio::test]
async fn section_2_2_the_owner_defines_the_form_of_a_key() {
    fn is_uuid(key: &str) -> bool {
        let groups: Vec<_> = key.split('-').map(str::len).collect();
        let hex = |char: char| char.is_ascii_hexdigit() || char == '-';
        groups == [8, 4, 4, 4, 12] && key.chars().all(hex)
    }
    let fixture = Fixture::new();
    let rules = KeyRules::default().accept(is_uuid);
    let shop = fixture.orders(fixture.layer().keys(rules), |run| run.to_string());
    for guessable in [
        "\"1\"",
        "\"order-1\"",
        "\"8e03978e-40d5-43e8-bc93-6894a57f932\"",
    ] {
        let refused = send(&shop, with(guessable)).await;
        assert_eq!(refused.problem(), (400, "key-invalid"));
    }
    assert_eq!(fixture.runs(), 0);
    assert_eq!(send(&shop, order("")).await.status, 200);
}

/// Section 2.3: "The resource MAY enforce time based idempotency keys, thus, be able to purge or delete a key upon
/// its expiry."
#[tokio::test]
async fn section_2_3_a_key_expires_when_its_time_is_over() {
    let fixture = Fixture::new();
    let layer = fixture.layer().ttl(Duration::from_hours(24));
    let shop = fixture.orders(layer, |run| run.to_string());
    assert_eq!(send(&shop, order("tea")).await.body, "1");
    fixture
        .clock
        .advance(Duration::from_hours(24) - Duration::from_millis(1));
    assert!(send(&shop, order("tea")).await.is_replayed());
    // A replay does not make it live longer.
    fixture.clock.advance(Duration::from_millis(1));
    let anew = send(&shop, order("tea")).await;
    assert_eq!(anew.body, "2");
    assert!(!anew.is_replayed());
    fixture.clock.advance(Duration::from_hours(24));
    // A client that has it then may use it for anything.
    assert_eq!(send(&shop, order("coffee")).await.body, "3");
}

/// Section 2.4: a fingerprint "MAY be used in conjunction with an idempotency key to determine the uniqueness of a
/// request": here, a checksum of the whole payload and of what it is for.
#[tokio::test]
async fn section_2_4_the_fingerprint_covers_the_request_and_no_header() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    let of = |uri: &str, body: &'static str| keyed(uri).body(Body::from(body)).unwrap();
    assert_eq!(send(&shop, of("/orders?a=1", "{\"a\":1}")).await.body, "1");
    // The payload counts byte by byte: what means the same to a parser is another payload.
    let others = [
        of("/orders?a=1", "{\"a\": 1}"),
        of("/orders?a=1", "{\"a\":1}\n"),
        of("/orders?a=2", "{\"a\":1}"),
        of("/orders", "{\"a\":1}"),
    ];
    for other in others {
        let refused = send(&shop, other).await;
        assert_eq!(refused.problem(), (422, "key-reused"));
    }
    // Headers are those of the attempt, not of the request: a client's clock, trace and agent change.
    let request = keyed("/orders?a=1")
        .header("content-type", "application/json")
        .header(
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
        .header("user-agent", "another/2.0");
    let again = send(&shop, request.body(Body::from("{\"a\":1}")).unwrap()).await;
    assert!(again.is_replayed());
    assert_eq!(fixture.runs(), 1);
}

/// Section 2.5: the server is to "identify idempotency key from the HTTP Idempotency-Key request header field".
#[tokio::test]
async fn section_2_5_the_key_comes_from_the_header_and_nowhere_else() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    let elsewhere = Request::post("/orders?idempotency-key=a&Idempotency-Key=a")
        .header("x-idempotency-key", "\"a\"")
        .header("cookie", "idempotency-key=a")
        .body(Body::from("{\"idempotency_key\":\"a\"}"))
        .unwrap();
    let refused = send(&shop, elsewhere).await;
    assert_eq!(refused.problem(), (400, "key-missing"));
    // Names of headers are the same in capitals (RFC 9110, section 5.1).
    let loud = Request::post("/orders").header("IDEMPOTENCY-KEY", KEY);
    assert_eq!(
        send(&shop, loud.body(Body::empty()).unwrap()).await.body,
        "1"
    );
    assert!(send(&shop, order("")).await.is_replayed());
}

/// Section 2.5: "Server is responsible for managing the lifecycle of the idempotency key": it is claimed before the
/// work and settled after it, and one whose request was not taken is free.
#[tokio::test]
async fn section_2_5_the_server_manages_the_life_of_a_key() {
    let fixture = Fixture::new();
    let layer = fixture.layer().max_body_bytes(8);
    let shop = fixture.orders(layer, |run| match run {
        1 => Err(http::StatusCode::SERVICE_UNAVAILABLE),
        _ => Ok(run.to_string()),
    });
    assert_eq!(send(&shop, order("far too long")).await.status, 413);
    assert_eq!(fixture.events.all(), [""; 0]);
    assert_eq!(send(&shop, order("tea")).await.status, 503);
    assert_eq!(fixture.events.all(), ["claimed 1", "released"]);
    assert_eq!(send(&shop, order("tea")).await.body, "2");
    assert!(send(&shop, order("tea")).await.is_replayed());
    assert_eq!(
        fixture.events.all()[2..],
        ["claimed 1", "completed value", "replayed value"]
    );
}
