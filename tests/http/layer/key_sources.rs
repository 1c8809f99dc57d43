//! Keys from elsewhere than the header `Idempotency-Key`.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use http::request::Builder;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer, KeyRefusal, KeySource};

use crate::client::{
    Fixture, INVALID, MISSING, REUSED, Refused, bare, data, frames, keyed, numbered, of_tenant,
    ran, replayed, send,
};

fn posted(uri: &str) -> Builder {
    Request::post(uri)
}

fn with(request: Builder, body: &'static str) -> Request {
    request.body(Body::from(body)).unwrap()
}

fn json() -> KeySource {
    KeySource::json("/meta/key")
}

#[tokio::test]
async fn a_key_is_read_from_its_place_and_from_no_other() {
    let header = |name, key| posted("/orders").header(name, key);
    // In PAYMENT-SIGNATURE: {"extensions":{"payment-identifier":{"info":{"id":"a"}}}}, and the same with "b".
    let a = "eyJleHRlbnNpb25zIjp7InBheW1lbnQtaWRlbnRpZmllciI6eyJpbmZvIjp7ImlkIjoiYSJ9fX19";
    let b = "eyJleHRlbnNpb25zIjp7InBheW1lbnQtaWRlbnRpZmllciI6eyJpbmZvIjp7ImlkIjoiYiJ9fX19";
    let cookie = KeySource::of("cookie `order`", |request| {
        let Some(line) = request.headers.get("cookie") else {
            return Ok(None);
        };
        let line = line.to_str().map_err(|_| KeyRefusal::Unreadable)?;
        let order = line
            .split("; ")
            .find_map(|pair| pair.strip_prefix("order="));
        Ok(order.map(str::to_owned))
    });
    let plain = |request| with(request, "");
    let in_body = |body| with(posted("/orders"), body);
    let named = |key| plain(header("x-request-key", key));
    let paid = |payment| plain(header("payment-signature", payment));
    let baked = |cookie| plain(header("cookie", cookie));
    let queried = |query| plain(posted(query));
    let [a_member, b_member] = [r#"{"meta":{"key":"a"}}"#, r#"{"meta":{"key":"b"}}"#];
    // The header `Idempotency-Key` is another place.
    let without = || keyed("/orders");
    for (source, [one, other, none]) in [
        (
            KeySource::header("X-Request-Key"),
            [named("\"a\""), named("b"), plain(without())],
        ),
        (
            json(),
            [in_body(a_member), in_body(b_member), with(without(), "{}")],
        ),
        (
            KeySource::query("key"),
            [
                queried("/orders?key=a"),
                queried("/orders?key=b"),
                plain(keyed("/orders?no=key")),
            ],
        ),
        (
            // The last one is {}.
            KeySource::payment_identifier(),
            [a, b, "e30="].map(paid),
        ),
        (
            cookie,
            [baked("a=1; order=a"), baked("order=b"), plain(without())],
        ),
    ] {
        let (fixture, shop) = numbered(|layer| layer.key_source(source.clone()));
        let again = || {
            let again = posted(&one.uri().to_string());
            one.headers()
                .iter()
                .fold(again, |again, (name, value)| again.header(name, value))
        };
        let is_in_body = source.to_string().contains("JSON");
        let body = if is_in_body { a_member } else { "" };
        let repeat = with(again(), body);
        let changed = again().header("x-other", "1").uri(match one.uri().query() {
            Some(query) => format!("/orders?{query}&b=1"),
            None => "/orders?b=1".to_owned(),
        });
        let changed = with(changed, body);
        let rows = [
            ("no key", none, MISSING),
            ("first", one, ran("1")),
            ("again", repeat, replayed("1")),
            ("another request", changed, REUSED),
            ("another key", other, ran("2")),
        ];
        let rows = rows.map(|(row, request, seen)| (format!("{source}: {row}"), request, seen));
        fixture.walk(&shop, rows).await;
    }
}

/// An invalid key is refused, also where a key is optional: nothing tells whether it was meant to be one.
#[tokio::test]
async fn what_cannot_be_read_is_never_taken_for_absent() {
    for set in [(|layer| layer) as fn(_) -> _, IdempotencyLayer::optional] {
        let (fixture, shop) = numbered(|layer| set(layer.key_source(json())));
        for body in [
            r#"{"meta":{"key":7}}"#,
            r#"{"meta":{"key":null}}"#,
            r#"{"meta":{"key":""}}"#,
            r#"{"meta":{"key":"a","key":"b"}}"#,
            r#"{"meta":7}"#,
            r#"{"meta":{"key":"a"}"#,
            "tea",
        ] {
            fixture.walk(&shop, [(body, bare(body), INVALID)]).await;
        }
        let (_, shop) = numbered(|layer| set(layer.key_source(KeySource::query("key"))));
        let twice = with(posted("/orders?key=a&key=a"), "");
        fixture.walk(&shop, [("twice", twice, INVALID)]).await;
        let source = KeySource::payment_identifier();
        let (_, shop) = numbered(|layer| set(layer.key_source(source)));
        let payment = with(posted("/orders").header("payment-signature", "{}"), "");
        fixture.walk(&shop, [("no base64", payment, INVALID)]).await;
        assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
    }
}

/// The body was read to find a key in it. The handler gets all of it, in the pieces or as one.
#[tokio::test]
async fn a_request_without_a_key_in_its_body_passes_with_the_body_whole() {
    let fixture = Fixture::new();
    let layer = fixture.scoped().optional().key_source(json());
    let counter = fixture.clone();
    let echo = axum::routing::post(async move |key: Option<IdempotencyKey>, body: Bytes| {
        counter.run();
        let key = key.map_or_else(String::new, |key| key.0);
        [key.as_bytes(), b" ", &body].concat()
    });
    let shop = crate::client::routed(echo, layer);
    let (source, pieces) = frames();
    for piece in ["{\"item\":", "\"tea\"", "}"] {
        source.send(data(piece)).unwrap();
    }
    drop(source);
    // Without a key it needs no owner either.
    let rows = [
        ("in pieces", bare(pieces), ran(" {\"item\":\"tea\"}")),
        ("empty", bare(""), ran(" ")),
        ("empty again", bare(""), ran(" ")),
    ];
    fixture.walk(&shop, rows).await;
    assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
    let body = r#"{"meta":{"key":"a"}}"#;
    let seen = "a {\"meta\":{\"key\":\"a\"}}";
    let rows = [
        ("of no caller", bare(body), Refused(403, "caller-unknown")),
        ("of acme", of_tenant("acme", bare(body)), ran(seen)),
        ("again", of_tenant("acme", bare(body)), replayed(seen)),
    ];
    fixture.walk(&shop, rows).await;
}

/// The limits of the body come before a key in it.
#[tokio::test]
async fn a_body_that_is_too_long_is_refused_before_its_key_is_looked_for() {
    let (fixture, shop) = numbered(|layer| layer.optional().max_body_bytes(20).key_source(json()));
    let too_large = Refused(413, "body-too-large");
    let rows = [
        ("with a key", bare(r#"{"meta":{"key":"a"}}  "#), too_large),
        ("without", bare("{                     }"), too_large),
        ("not longer", bare(r#"{"meta":{"key":"a"}}"#), ran("1")),
    ];
    fixture.walk(&shop, rows).await;
}

/// A request without a payment gets the payment layer's challenge. So it is where paid requests need an id.
#[tokio::test]
async fn a_request_without_a_payment_passes_a_layer_whose_keys_are_in_payments() {
    let source = KeySource::payment_identifier();
    let (fixture, shop) = numbered(|layer| layer.key_source(source));
    let paid = |payment: &str| with(posted("/orders").header("payment-signature", payment), "");
    let rows = [
        ("no payment", bare(""), ran("1")),
        (
            "version 1",
            with(posted("/orders").header("x-payment", "e30="), ""),
            ran("2"),
        ),
        ("no id", paid("e30="), MISSING),
    ];
    fixture.walk(&shop, rows).await;
    assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
}

/// The texts of all places have a unit test.
#[tokio::test]
async fn a_refusal_names_the_place_and_not_the_key() {
    let (_, shop) = numbered(|layer| layer.key_source(json()));
    let refused = send(&shop, bare(r#"{"meta":{"key":["s3cret"]}}"#)).await;
    let document = refused.json();
    let text = "the member `/meta/key` of the JSON body is not a string";
    assert_eq!(document["detail"], text);
    assert!(!document.to_string().contains("s3cret"), "{document}");
}
