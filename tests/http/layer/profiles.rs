//! The profiles: what a client of each partner's API gets, row by row.

use std::fmt::Write as _;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Builder;
use http::{HeaderName, Method, StatusCode};
use idem_runtime::http::{IdempotencyLayer, KeyDomain, KeyRules, KeySource, Profile};
use idem_runtime::{ErrorKind, FOREVER, Policy};
use serde_json::{Value, json};

use crate::client::{Answer, Fixture, KEY, keyed, send, with_key};

const UUID: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
const UUID_7: &str = "019de3f4-15aa-7c89-8d3a-6f5e4b3c2a1d";

/// What a client gets.
#[derive(Clone, Copy, Debug)]
enum Gets {
    /// The response of a handler that ran, of this status.
    Run(u16),
    /// The stored response of this status.
    Replay(u16),
    /// A refusal of this status, with this value at this pointer of its document.
    Refusal(u16, &'static str, &'static str),
}
use Gets::{Refusal, Replay, Run};

/// The status that the handler answers with; a header is no part of a request.
const STATUS: &str = "x-status";

/// A service on every path, which counts its runs.
fn shop(fixture: &Fixture, layer: IdempotencyLayer) -> Router {
    let fixture = fixture.clone();
    let handler = any(async move |request: Request| {
        let run = fixture.run();
        let status = request.headers().get(STATUS);
        let status = status.map_or(StatusCode::OK, |status| {
            status.to_str().unwrap().parse().unwrap()
        });
        let mut response = axum::response::Response::new(Body::from(format!("run {run}")));
        *response.status_mut() = status;
        let settled = match request.headers().get("x-settlement") {
            None if status != StatusCode::PAYMENT_REQUIRED => Some("payment-response"),
            None => None,
            Some(header) => Some(header.to_str().unwrap()),
        };
        if let Some(header) = settled {
            let name = HeaderName::from_bytes(header.as_bytes()).unwrap();
            response.headers_mut().insert(name, "e30=".parse().unwrap());
        }
        response
    });
    Router::new().fallback_service(handler).layer(layer)
}

/// The key of requests of this profile, and the header that has it.
fn key_of(profile: &Profile) -> (&'static str, String) {
    match profile.name() {
        "draft" => ("idempotency-key", format!("\"{UUID}\"")),
        "iceberg_rest" => ("idempotency-key", UUID_7.to_owned()),
        "x402" => (
            "payment-signature",
            payment("pay_7d5d747be160e280", "10", "1"),
        ),
        _ => ("idempotency-key", UUID.to_owned()),
    }
}

/// A payment of x402: its id, its amount and its signature.
fn payment(id: &str, amount: &str, signature: &str) -> String {
    let payment = json!({
        "x402Version": 2,
        "resource": { "url": "https://shop.example/report", "description": "a report" },
        "accepted": { "scheme": "exact", "network": "eip155:84532", "amount": amount, "payTo": "0x7", "asset": "0x8" },
        "payload": { "signature": signature },
        "extensions": { "payment-identifier": { "info": { "required": false, "id": id } } },
    });
    STANDARD.encode(payment.to_string())
}

fn posted(uri: &str, profile: &Profile) -> Builder {
    let (name, key) = key_of(profile);
    Request::post(uri)
        .header(name, key)
        .header("content-type", "application/json")
}

fn with(request: Builder, body: impl Into<Body>) -> Request {
    request.body(body.into()).unwrap()
}

fn profiles() -> [Profile; 7] {
    [
        Profile::draft(),
        Profile::stripe_v1(),
        Profile::stripe_v2(),
        Profile::acp(),
        Profile::ucp(),
        Profile::x402(),
        Profile::iceberg_rest(),
    ]
}

/// Sends requests one after the other.
async fn walk(
    fixture: &Fixture,
    shop: &Router,
    rows: impl IntoIterator<Item = (&'static str, Request, Gets)>,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (row, request, gets) in rows {
        let before = fixture.runs();
        let answer = send(shop, request).await;
        let (status, is_run, is_replay) = match gets {
            Run(status) => (status, true, false),
            Replay(status) => (status, false, true),
            Refusal(status, pointer, word) => {
                let document = answer.json();
                let found = document.pointer(pointer);
                assert_eq!(found, Some(&Value::from(word)), "{row}: {document}");
                (status, false, false)
            }
        };
        assert_eq!(answer.status, status, "{row}: {answer:?}");
        assert_eq!(answer.is_replayed(), is_replay, "{row}: {answer:?}");
        assert_eq!(fixture.runs() - before, usize::from(is_run), "{row}");
        answers.push(answer);
    }
    answers
}

/// What becomes of a key after a status: `=` it is stored; `o` it is released, and accepts its own request alone; `*` it is
/// released, and accepts a corrected one; `?` it is unknown.
#[tokio::test]
async fn each_profile_decides_what_of_a_status_is_kept() {
    let statuses = [
        200, 303, 400, 401, 402, 404, 408, 409, 419, 422, 429, 500, 501, 503, 504,
    ];
    let mut table = String::new();
    for profile in profiles() {
        let mut line = String::new();
        for status in statuses {
            let fixture = Fixture::new();
            let shop = shop(&fixture, fixture.layer().profile(profile.clone()));
            let first = posted("/orders", &profile).header(STATUS, status);
            assert_eq!(send(&shop, with(first, "{\"a\":1}")).await.status, status);
            let other = send(&shop, with(posted("/orders", &profile), "{\"a\":2}")).await;
            let ran_other = fixture.runs() == 2;
            let again = send(&shop, with(posted("/orders", &profile), "{\"a\":1}")).await;
            line.push(
                match (ran_other, again.is_replayed(), again.status.as_u16()) {
                    (false, true, code) if code == status => '=',
                    (false, false, 200) => 'o',
                    (true, false, _) => '*',
                    (false, false, 500) => '?',
                    _ => panic!("{}: {status}: {other:?} {again:?}", profile.name()),
                },
            );
        }
        writeln!(table, "{line} {}", profile.name()).unwrap();
    }
    // 200, 303, 400, 401, 402, 404, 408, 409, 419, 422, 429, 500, 501, 503, 504
    let expected = "\
===*=========== draft
==**===*=**==== stripe_v1
==ooooooooooooo stripe_v2
===*==o=*=*oooo acp
===*======*==o= ucp
==**?*?==**?oo? x402
===*==o=*=*oooo iceberg_rest
";
    assert_eq!(table, expected);
}

/// By which requests a key is used: each method, first and again.
#[tokio::test]
async fn each_profile_protects_its_methods() {
    use http::Method as M;
    let methods = [
        M::GET,
        M::HEAD,
        M::POST,
        M::PUT,
        M::PATCH,
        M::DELETE,
        M::OPTIONS,
    ];
    for (profile, protected) in [
        (Profile::draft(), &[M::POST, M::PATCH][..]),
        (Profile::stripe_v1(), &[M::POST]),
        (Profile::stripe_v2(), &[M::POST, M::DELETE]),
        (Profile::acp(), &[M::POST]),
        (Profile::ucp(), &[M::POST, M::PUT, M::PATCH, M::DELETE]),
        (
            Profile::x402(),
            &[M::GET, M::HEAD, M::POST, M::PUT, M::PATCH, M::DELETE],
        ),
        (Profile::iceberg_rest(), &[M::POST, M::DELETE]),
    ] {
        for method in &methods {
            let fixture = Fixture::new();
            let shop = shop(&fixture, fixture.layer().profile(profile.clone()));
            for _ in 0..2 {
                send(&shop, with(posted("/orders", &profile).method(method), "")).await;
            }
            let runs = if protected.contains(method) { 1 } else { 2 };
            assert_eq!(fixture.runs(), runs, "{}: {method}", profile.name());
        }
    }
}

/// What is another key: on another path, by another method; and what is the same request.
#[tokio::test]
async fn each_profile_has_its_own_equality() {
    let first = r#"{"a":1,"b":[1,2]}"#;
    for (profile, reused, by_path, by_method, by_value) in [
        (Profile::draft(), 422, false, false, false),
        (Profile::stripe_v1(), 400, false, false, false),
        (Profile::acp(), 422, true, false, true),
        (Profile::ucp(), 409, true, true, false),
        (Profile::iceberg_rest(), 422, false, false, true),
    ] {
        let methods = [Method::POST, Method::PATCH];
        let layer = |fixture: &Fixture| {
            fixture
                .layer()
                .profile(profile.clone())
                .methods(methods.clone())
        };
        for (row, method, uri, body, is_same, is_other_key) in [
            ("another path", &methods[0], "/carts", first, false, by_path),
            (
                "another method",
                &methods[1],
                "/orders",
                first,
                false,
                by_method,
            ),
            (
                "written anew",
                &methods[0],
                "/orders",
                r#"{ "b": [1.0, 2e0], "a": 1 }"#,
                by_value,
                false,
            ),
            (
                "another order",
                &methods[0],
                "/orders",
                r#"{"a":1,"b":[2,1]}"#,
                false,
                false,
            ),
            (
                "null",
                &methods[0],
                "/orders",
                r#"{"a":1,"b":[1,2],"c":null}"#,
                false,
                false,
            ),
            (
                "another query",
                &methods[0],
                "/orders?c=1",
                first,
                false,
                false,
            ),
        ] {
            let fixture = Fixture::new();
            let shop = shop(&fixture, layer(&fixture));
            send(&shop, with(posted("/orders", &profile), first)).await;
            let answer = send(&shop, with(posted(uri, &profile).method(method), body)).await;
            let seen = (answer.status.as_u16(), answer.is_replayed(), fixture.runs());
            let expected = match (is_same, is_other_key) {
                (true, _) => (200, true, 1),
                (_, true) => (200, false, 2),
                _ => (reused, false, 1),
            };
            assert_eq!(seen, expected, "{}: {row}", profile.name());
        }
    }
}

/// Finds a second run after a settlement that ended with an error: the payment may have been made. x402's middleware
/// verifies before the handler and settles after it, and answers 402 in each case.
#[tokio::test]
async fn a_402_of_a_paid_request_is_treated_by_what_it_says_of_the_settlement() {
    let unknown = Refusal(500, "/code", "outcome-unknown");
    for (settlement, again) in [
        ("payment-required", Run(200)),
        ("payment-response", Replay(402)),
        ("x-none", unknown),
    ] {
        let fixture = Fixture::new();
        let shop = shop(&fixture, fixture.layer().profile(Profile::x402()));
        let paid = || {
            let payment = payment("pay_7d5d747be160e280", "10", "1");
            Request::get("/report").header("payment-signature", payment)
        };
        let refused = paid()
            .header(STATUS, "402")
            .header("x-settlement", settlement);
        let rows = [
            (settlement, with(refused, ""), Run(402)),
            (settlement, with(paid(), ""), again),
        ];
        walk(&fixture, &shop, rows).await;
    }
}

/// The reference client signs a new payment when it repeats a request, with the same id.
#[tokio::test]
async fn a_payment_with_the_same_terms_is_the_same_request() {
    let fixture = Fixture::new();
    let shop = shop(&fixture, fixture.layer().profile(Profile::x402()));
    let id = "pay_7d5d747be160e280";
    let paid = |uri: &str, payment: String| {
        with(Request::get(uri).header("payment-signature", payment), "")
    };
    let reused = Refusal(409, "/code", "key-reused");
    let challenged = Request::get("/report").header(STATUS, "402");
    let unverified = Request::get("/report")
        .header(STATUS, "402")
        .header("x-settlement", "payment-required")
        .header("payment-signature", payment(id, "10", "0"));
    let rows = [
        ("the challenge", with(challenged, ""), Run(402)),
        ("a payment that failed", with(unverified, ""), Run(402)),
        ("paid", paid("/report", payment(id, "10", "1")), Run(200)),
        (
            "again",
            paid("/report", payment(id, "10", "1")),
            Replay(200),
        ),
        (
            "signed anew",
            paid("/report", payment(id, "10", "2")),
            Replay(200),
        ),
        (
            "another amount",
            paid("/report", payment(id, "11", "1")),
            reused,
        ),
        (
            "another path",
            paid("/other", payment(id, "10", "1")),
            reused,
        ),
        (
            "another id",
            paid("/report", payment("pay_7d5d747be160e281", "10", "1")),
            Run(200),
        ),
        (
            "no id",
            paid("/report", payment("", "10", "1")),
            Refusal(400, "/code", "key-invalid"),
        ),
    ];
    let answers = walk(&fixture, &shop, rows).await;
    // The result of the settlement, which the client checks.
    assert_eq!(answers[3].header("payment-response"), Some("e30="));
    let all = fixture.layer().profile(Profile::x402().required());
    let shop = self::shop(&fixture, all);
    // {}
    let rows = [
        ("no payment", with(Request::get("/report"), ""), Run(200)),
        (
            "no id",
            paid("/report", "e30=".to_owned()),
            Refusal(400, "/code", "key-missing"),
        ),
    ];
    walk(&fixture, &shop, rows).await;
}

#[tokio::test]
async fn a_key_is_echoed_as_it_was_sent() {
    let layer = |fixture: &Fixture| fixture.layer().echo_key(true).max_body_bytes(8);
    let fixture = Fixture::new();
    let shop = shop(&fixture, layer(&fixture));
    let bare = KEY.trim_matches('"');
    for (request, echoed) in [
        (with_key(KEY, "tea"), Some(KEY)),
        (with_key(bare, "tea"), Some(bare)),
        // Refused: another request, and a body that is too long.
        (with_key(bare, "rum"), Some(bare)),
        (with_key(KEY, "too long a body"), Some(KEY)),
        (with_key("a, b", "tea"), None),
        (with(Request::post("/orders"), ""), None),
        (with(keyed("/orders").method("GET"), ""), None),
    ] {
        let answer = send(&shop, request).await;
        assert_eq!(answer.header("idempotency-key"), echoed, "{answer:?}");
    }
    let fixture = Fixture::new();
    let shop = self::shop(
        &fixture,
        layer(&fixture).key_source(KeySource::header("x-key")),
    );
    let request = || with(Request::post("/orders").header("x-key", "a"), "");
    for _ in 0..2 {
        assert_eq!(send(&shop, request()).await.header("x-key"), Some("a"));
    }
    let fixture = Fixture::new();
    let shop = self::shop(
        &fixture,
        layer(&fixture).key_source(KeySource::query("key")),
    );
    let answer = send(&shop, with(Request::post("/orders?key=a"), "")).await;
    assert_eq!(answer.header("idempotency-key"), None);
}

#[tokio::test]
async fn the_lifetime_of_a_key_is_published() {
    let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
    for (set, lifetime, text) in [
        (
            (|layer| layer) as fn(IdempotencyLayer) -> IdempotencyLayer,
            hours(24),
            Some("PT24H"),
        ),
        (
            |layer| layer.profile(Profile::ucp()).echo_lifetime("x-lifetime"),
            hours(48),
            Some("PT48H"),
        ),
        (
            |layer| layer.ttl(Duration::from_secs(90)),
            Duration::from_secs(90),
            Some("PT1M30S"),
        ),
        (
            |layer| layer.error_ttl(Duration::from_mins(1)),
            Duration::from_mins(1),
            Some("PT1M"),
        ),
        (|layer| layer.error_ttl(FOREVER), hours(24), Some("PT24H")),
    ] {
        let fixture = Fixture::new();
        let layer = set(fixture.layer().echo_lifetime("X-Lifetime"));
        assert_eq!(layer.lifetime().unwrap(), lifetime);
        let shop = shop(&fixture, layer.keys(KeyRules::default()));
        for body in ["tea", "tea", "rum"] {
            let answer = send(&shop, with_key(KEY, body)).await;
            assert_eq!(answer.header("x-lifetime"), text, "{answer:?}");
        }
        let without = send(&shop, with(Request::post("/orders"), "")).await;
        assert_eq!(without.header("x-lifetime"), None);
    }
    let fixture = Fixture::new();
    let invalid = fixture.layer().ttl(Duration::ZERO);
    assert!(matches!(
        invalid.lifetime().unwrap_err().kind(),
        ErrorKind::InvalidPolicy
    ));
}

/// At the end of its life a key of a profile is free: the ttl of each.
#[tokio::test]
async fn each_profile_keeps_its_answers_for_its_time() {
    let hour = Duration::from_hours(1);
    for (profile, ttl) in [
        (Profile::draft(), 24 * hour),
        (Profile::stripe_v1(), 24 * hour),
        (Profile::stripe_v2(), 30 * 24 * hour),
        (Profile::acp(), 24 * hour),
        (Profile::ucp(), 48 * hour),
        (Profile::x402(), 24 * hour),
        (Profile::iceberg_rest(), hour * 35 / 60),
    ] {
        let fixture = Fixture::new();
        let layer = fixture.layer().profile(profile.clone());
        assert_eq!(layer.lifetime().unwrap(), ttl, "{}", profile.name());
        let shop = shop(&fixture, layer);
        let request = || with(posted("/orders", &profile), "");
        walk(&fixture, &shop, [("first", request(), Run(200))]).await;
        fixture
            .clock
            .advance(ttl.saturating_sub(Duration::from_millis(1)));
        walk(&fixture, &shop, [("late", request(), Replay(200))]).await;
        fixture.clock.advance(Duration::from_millis(1));
        walk(&fixture, &shop, [("too late", request(), Run(200))]).await;
    }
}

/// Whatever a profile sets can be set after it, on the layer and on the profile, and is printed.
#[tokio::test]
async fn each_setting_of_a_profile_can_be_changed_and_is_printed() {
    let fixture = Fixture::new();
    let of_layer = fixture
        .layer()
        .ttl(Duration::from_secs(1))
        .methods([Method::PUT])
        .profile(Profile::acp());
    let text = |layer: &IdempotencyLayer| layer.as_profile().to_string();
    assert_eq!(text(&of_layer), Profile::acp().to_string());
    for line in [
        "profile: acp",
        "methods: POST",
        "required: yes",
        "key_source: Idempotency-Key header",
        "keys: the whole value of a header; at most 255 characters",
        "key_domain: caller and path",
        "fingerprint: method, path, query, body (JSON by value)",
        "status_policy: release 401, 407-408, 411, 417, 419, 421, 425-426, 428-429, 500-599; store the rest",
        "stored headers: the usual",
        "echo_key: yes",
        "echo_lifetime: no",
        "ttl: 86400s",
        "error_ttl: that of ttl",
        "lease: the engine's",
        "on_duplicate: Replay",
        "on_running: Reject",
        "on_panic: by status_policy",
        "count_errors: false",
    ] {
        assert!(
            text(&of_layer).lines().any(|it| it == line),
            "{line}: {}",
            text(&of_layer)
        );
    }
    let changed = of_layer
        .ttl(Duration::from_secs(7))
        .methods([Method::PUT])
        .optional()
        .key_source(KeySource::query("k"))
        .keys(KeyRules::default())
        .key_domain(KeyDomain::Caller)
        .store_header("x-a")
        .never_store(["etag"])
        .echo_key(false)
        .echo_lifetime("x-b");
    let policy = Policy::new().ttl(Duration::from_secs(7));
    let of_profile = Profile::acp()
        .policy(policy)
        .methods([Method::PUT])
        .optional()
        .key_source(KeySource::query("k"))
        .keys(KeyRules::default())
        .key_domain(KeyDomain::Caller)
        .store_header("x-a")
        .never_store(["etag"])
        .echo_key(false)
        .echo_lifetime("x-b");
    assert_eq!(text(&changed), of_profile.to_string());
    for line in [
        "methods: PUT",
        "required: no",
        "key_source: query parameter `k`",
        "keys: quoted or bare in a header; at most 255 characters",
        "key_domain: caller",
        "stored headers: the usual, x-a, not etag",
        "echo_key: no",
        "echo_lifetime: x-b",
        "ttl: 7s",
        "on_running: Reject",
    ] {
        assert!(
            text(&changed).lines().any(|it| it == line),
            "{line}: {}",
            text(&changed)
        );
    }
    let shop = shop(&fixture, changed);
    let put = || with(Request::put("/orders?k=a"), "");
    walk(
        &fixture,
        &shop,
        [("first", put(), Run(200)), ("again", put(), Replay(200))],
    )
    .await;
}
