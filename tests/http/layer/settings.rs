//! The effects of a layer's settings.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use axum::routing::post;
use http::{Method, StatusCode};
use idem_runtime::Error;
use idem_runtime::http::{Fingerprinter, IdempotencyLayer, KeyVerdict, Problem, StatusPolicy};

use crate::client::{
    Fixture, KEY, REUSED, Ran, Refused, Replayed, UNKNOWN, data, frames, keyed, numbered, order,
    ran, replayed, routed, send,
};

/// Of errors the draft says in section 2.6: "the resource server SHOULD respond with the result of the previously
/// completed operation, success or an error". What the default does instead is a part of [`StatusPolicy`]'s
/// documentation.
#[tokio::test]
async fn the_policy_decides_the_response_to_a_repeat() {
    use KeyVerdict::{Release, Store, Unknown};
    let careful = StatusPolicy::careful;
    for (policy, verdict, statuses) in [
        (careful(), Store, &[201, 303, 409][..]),
        (careful(), Release, &[422, 503]),
        (careful(), Unknown, &[500]),
        (StatusPolicy::draft(), Store, &[422, 500]),
        (StatusPolicy::stripe(), Store, &[500, 402]),
        (careful().on(StatusCode::CREATED, Unknown), Unknown, &[201]),
    ] {
        for status in statuses.iter().copied() {
            let fixture = Fixture::new();
            let layer = fixture.layer().status_policy(policy.clone());
            let shop = fixture.orders(layer, move |run| {
                (StatusCode::from_u16(status).unwrap(), run.to_string())
            });
            let repeat = match verdict {
                Store => Replayed(status, "1"),
                Release => Ran(status, "2"),
                _ => UNKNOWN,
            };
            let row = format!("{policy:?}: {status}");
            let first = (&row, order(""), Ran(status, "1"));
            fixture
                .walk(&shop, [first, (&row, order(""), repeat)])
                .await;
        }
    }
}

#[tokio::test]
async fn a_handler_knows_better_than_its_status() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| {
        let mut response = (StatusCode::BAD_GATEWAY, run.to_string()).into_response();
        response.extensions_mut().insert(KeyVerdict::Release);
        response
    });
    let rows = [
        ("first", order(""), Ran(502, "1")),
        ("again", order(""), Ran(502, "2")),
    ];
    fixture.walk(&shop, rows).await;
}

/// The handler's own engine refuses: that is no answer of the handler's.
#[tokio::test]
async fn a_refusal_of_idem_within_is_not_stored() {
    let fixture = Fixture::new();
    let inner = fixture.engine.clone();
    let counter = fixture.clone();
    let handler = post(move || async move {
        counter.run();
        let call = inner.operation("inner").key("");
        let refused = call.run(|_| async { Ok::<_, Error>(1) }).await;
        Problem::from(&refused.unwrap_err()).into_response()
    });
    let draft = fixture.layer().status_policy(StatusPolicy::draft());
    let shop = routed(handler, draft);
    for runs in 1..=2 {
        assert_eq!(send(&shop, order("")).await.problem().1, "key-invalid");
        assert_eq!(fixture.runs(), runs);
    }
}

/// The attack: a key that a handler gives its first client is read by any client that repeats the request.
#[tokio::test]
async fn an_unlisted_header_is_not_stored() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |_| {
        [
            ("x-api-key", "s3cret"),
            ("refresh-token", "s3cret"),
            ("x-session-token", "s3cret"),
            ("x-amz-security-token", "s3cret"),
            ("access-control-allow-origin", "https://first.test"),
            ("x-order-id", "7"),
            ("location", "/orders/7"),
        ]
        .into_response()
    });
    let first = send(&shop, order("")).await;
    assert_eq!(first.headers.len(), 8, "the first response has them all");
    let again = send(&shop, order("")).await;
    let mut names: Vec<_> = again.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "idempotent-replayed", "location"]);
}

#[tokio::test]
async fn a_layer_lists_its_headers() {
    type Set = fn(IdempotencyLayer) -> IdempotencyLayer;
    let both = ["etag", "x-other"];
    for (set, expected) in [
        ((|layer| layer) as Set, &["etag"][..]),
        (
            |layer| layer.store_header("X-Order-Id"),
            &["etag", "x-order-id"],
        ),
        (|layer| layer.store_only(["x-other"]), &["x-other"]),
        (
            |layer| layer.store_only(["x-other"]).store_header("etag"),
            &both,
        ),
        (
            |layer| {
                layer
                    .never_store(["ETag", "x-other"])
                    .store_header("x-other")
            },
            &[],
        ),
        (
            |layer| layer.never_store(["etag"]).store_only(["etag", "x-other"]),
            &["x-other"],
        ),
    ] {
        let fixture = Fixture::new();
        let shop = fixture.orders(set(fixture.layer()), |_| {
            [("x-order-id", "7"), ("etag", "1"), ("x-other", "2")].into_response()
        });
        send(&shop, order("")).await;
        let again = send(&shop, order("")).await;
        let names = ["etag", "x-order-id", "x-other"];
        let stored = names
            .into_iter()
            .filter(|name| again.header(name).is_some());
        assert_eq!(stored.collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn other_methods_are_protected_on_demand() {
    let (fixture, shop) = numbered(|layer| layer.methods([Method::PUT]));
    let replace = || {
        let request = Request::put("/orders").header("idempotency-key", KEY);
        request.body(Body::empty()).unwrap()
    };
    let rows = [
        ("first", replace(), ran("1")),
        ("again", replace(), replayed("1")),
    ];
    fixture.walk(&shop, rows).await;
}

#[tokio::test]
async fn a_setting_out_of_range_is_the_servers_mistake() {
    let (fixture, shop) = numbered(|layer| layer.ttl(Duration::ZERO));
    let misconfigured = Refused(500, "misconfigured");
    fixture
        .walk(&shop, [("no life", order(""), misconfigured)])
        .await;
}

/// Two layers may have one store: the names keep them apart.
#[tokio::test]
async fn two_layers_have_keys_of_their_own() {
    let fixture = Fixture::new();
    for (name, run) in [("shop.api", "1"), ("admin.api", "2")] {
        let layer = IdempotencyLayer::public(&fixture.engine, name);
        let shop = fixture.orders(layer, |run| run.to_string());
        let rows = [
            (name, order(""), ran(run)),
            (name, order(""), replayed(run)),
        ];
        fixture.walk(&shop, rows).await;
    }
}

/// The rules of a fingerprinter have unit tests; the layer applies them to the request as it comes, in pieces too.
#[tokio::test]
async fn a_fingerprinter_decides_what_is_the_same_request() {
    let rules = Fingerprinter::new().json_without(["/sent_at"]);
    let rules = rules.header("accept-language");
    let (fixture, shop) = numbered(|layer| layer.fingerprint(rules));
    let of = |language: &str, body: Body| {
        let request = keyed("/orders").header("content-type", "application/json");
        let request = request.header("accept-language", language);
        request.body(body).unwrap()
    };
    let (source, pieces) = frames();
    for piece in ["{\"price\"", ":1.50,\"it", "em\":\"tea\"}"] {
        source.send(data(piece)).unwrap();
    }
    drop(source);
    let first = r#"{"item":"tea","price":1.50,"sent_at":"12:00:00"}"#;
    let anew = r#"{ "sent_at":"12:00:01", "price":1.50, "item":"t\u0065a" }"#;
    let rows = [
        ("first", of("de", first.into()), ran("1")),
        ("written anew", of("de", anew.into()), replayed("1")),
        ("in pieces", of("de", pieces), replayed("1")),
        ("in another language", of("en", first.into()), REUSED),
        ("no JSON", of("de", "tea".into()), REUSED),
    ];
    fixture.walk(&shop, rows).await;
}

/// As documented: nothing runs twice.
#[tokio::test]
async fn another_rule_refuses_repeats_of_earlier_requests() {
    let fixture = Fixture::new();
    for (rule, seen) in [
        (Fingerprinter::new(), ran("1")),
        (Fingerprinter::new().json(), REUSED),
    ] {
        let shop = fixture.orders(fixture.layer().fingerprint(rule), |run| run.to_string());
        let request = keyed("/orders").header("content-type", "application/json");
        let request = request.body(Body::from("{\"item\": \"tea\"}")).unwrap();
        fixture.walk(&shop, [("the same", request, seen)]).await;
    }
}
