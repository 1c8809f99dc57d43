//! draft-ietf-httpapi-idempotency-key-header-07, section by section: what its table in `idem_conformance::http` does not
//! show. The names of the tests begin with the section.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::AppendHeaders;
use axum::routing::any;
use http::{Method, StatusCode};
use idem_runtime::http::KeyRules;

use crate::client::{
    Fixture, INVALID, REUSED, Refused, bare, keyed, numbered, of_tenant, order, ran, replayed,
    send, with_key,
};

fn with(key: &str) -> Request {
    with_key(key, "tea")
}

/// "Used to make non-idempotent HTTP methods such as POST or PATCH fault-tolerant". The others are idempotent by
/// themselves (RFC 9110, section 9.2.2).
#[tokio::test]
async fn section_2_keys_of_other_methods_are_not_read_and_the_store_is_not_asked() {
    let (fixture, shop) = numbered(|layer| layer);
    let of = |method: Method, key: &str| {
        let request = Request::builder().method(method).uri("/orders");
        let request = request.header("idempotency-key", key);
        request.body(Body::empty()).unwrap()
    };
    let unread = "not a key, and never read";
    let rows = [
        ("GET", of(Method::GET, unread), ran("1")),
        ("PUT", of(Method::PUT, unread), ran("2")),
        ("DELETE", of(Method::DELETE, unread), ran("3")),
        ("OPTIONS", of(Method::OPTIONS, unread), ran("4")),
    ];
    fixture.walk(&shop, rows).await;
    assert_eq!(fixture.events.all(), [""; 0]);
}

/// "Uniqueness of the key MUST be defined by the resource owner"; "RECOMMENDED that UUID or a similar random identifier
/// be used".
#[tokio::test]
async fn section_2_2_the_owner_defines_the_form_of_a_key() {
    fn is_uuid(key: &str) -> bool {
        let groups: Vec<_> = key.split('-').map(str::len).collect();
        let hex = |char: char| char.is_ascii_hexdigit() || char == '-';
        groups == [8, 4, 4, 4, 12] && key.chars().all(hex)
    }
    let (fixture, shop) = numbered(|layer| layer.keys(KeyRules::default().accept(is_uuid)));
    let short = "\"8e03978e-40d5-43e8-bc93-6894a57f932\"";
    let rows = [
        ("a number", with("\"1\""), INVALID),
        ("a guess", with("\"order-1\""), INVALID),
        ("too short", with(short), INVALID),
        ("a UUID", order("tea"), ran("1")),
    ];
    fixture.walk(&shop, rows).await;
}

/// The fingerprint that "MAY be used in conjunction with an idempotency key": the method, the path with its query, and
/// the payload byte by byte.
#[tokio::test]
async fn section_2_4_the_fingerprint_covers_the_request_and_no_header() {
    let fixture = Fixture::new();
    let counter = fixture.clone();
    let handler = any(move || async move { counter.run().to_string() });
    let shop = Router::new()
        .fallback_service(handler)
        .layer(fixture.layer());
    let of = |method: Method, uri: &str, body: &'static str| {
        let request = keyed(uri).method(method);
        request.body(Body::from(body)).unwrap()
    };
    let post = |uri: &str, body| of(Method::POST, uri, body);
    let json = "{\"a\":1}";
    let rows = [
        ("the first", post("/orders?a=1", json), ran("1")),
        ("PATCH", of(Method::PATCH, "/orders?a=1", json), REUSED),
        ("a blank", post("/orders?a=1", "{\"a\": 1}"), REUSED),
        ("a line feed", post("/orders?a=1", "{\"a\":1}\n"), REUSED),
        ("no payload", post("/orders?a=1", ""), REUSED),
        ("another query", post("/orders?a=2", json), REUSED),
        ("no query", post("/orders", json), REUSED),
        ("an empty query", post("/orders?", json), REUSED),
        ("path and query", post("/order?s=a=1", json), REUSED),
        ("query in payload", post("/orders", "?a=1{\"a\":1}"), REUSED),
        ("payload in query", post("/orders?a=1{", "\"a\":1}"), REUSED),
    ];
    fixture.walk(&shop, rows).await;
    // Headers are those of the attempt, not of the request: a client's clock, trace and agent change.
    let again = keyed("/orders?a=1")
        .header("content-type", "application/json")
        .header("traceparent", "00-4bf92f3577b34da6-00f067aa0ba902b7-01")
        .header("user-agent", "another/2.0");
    let again = again.body(Body::from(json)).unwrap();
    let row = ("other headers", again, replayed("1"));
    fixture.walk(&shop, [row]).await;
}

/// "First time request: the resource server SHOULD process the request normally and respond with an appropriate response
/// and status code." "Retry: the request was retried after the original request completed. The resource server SHOULD
/// respond with the result of the previously completed operation, success or an error."
#[tokio::test]
async fn section_2_6_a_first_request_is_processed_normally_and_a_retry_gets_its_result() {
    let created = |run: usize| {
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
    };
    let fixture = Fixture::new();
    let unprotected = fixture.orders(fixture.layer().optional(), created);
    let mut expected = send(&unprotected, bare("tea")).await;
    assert_eq!(expected.headers["set-cookie"], "session=s3cret");
    let shop = fixture.orders(fixture.layer(), created);
    let first = send(&shop, order("tea")).await;
    assert_eq!(first.body, [0, 0xff, 2][..]);
    expected.body = first.body.clone();
    // As if there were no layer: nothing says that it could have been a replay.
    assert_eq!(first, expected);
    for name in ["set-cookie", "x-request-id"] {
        assert!(expected.headers.remove(name).is_some(), "{name}");
    }
    let replayed = "true".parse().unwrap();
    expected.headers.insert("idempotent-replayed", replayed);
    for _ in 0..3 {
        assert_eq!(send(&shop, order("tea")).await, expected);
    }
    assert_eq!(fixture.runs(), 2);
}

/// "Data leaks", and "a unique composite key": neither an answer nor a sign that there is one.
#[tokio::test]
async fn section_5_no_client_gets_the_answer_of_another() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.scoped(), |run| format!("secret {run}"));
    let unknown = Refused(403, "caller-unknown");
    let of = |tenant: &str| of_tenant(tenant, order("tea"));
    // As long as a signed token, and different only at its end.
    let (long, longer) = ("x".repeat(2_000), format!("{}y", "x".repeat(2_000)));
    let rows = [
        ("acme", of("acme"), ran("secret 1")),
        ("another tenant", of("eve"), ran("secret 2")),
        ("no tenant", order("tea"), unknown),
        ("a blank tenant", of(" "), unknown),
        // Parts that are the same once they are put side by side.
        ("acm", of_tenant("acm", with("\"ea\"")), ran("secret 3")),
        ("acme", of_tenant("acme", with("\"a\"")), ran("secret 4")),
        ("a token", of(&long), ran("secret 5")),
        ("a longer token", of(&longer), ran("secret 6")),
        ("the token again", of(&long), replayed("secret 5")),
        ("acme again", of("acme"), replayed("secret 1")),
    ];
    fixture.walk(&shop, rows).await;
}
