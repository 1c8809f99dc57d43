//! The settings of profiles. Their sentences are in `idem-conformance/tests/profiles`.

use std::fmt::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Builder;
use http::{Method, StatusCode};
use idem_runtime::http::{IdempotencyLayer, KeyDomain, KeyRules, KeySource, Profile};
use idem_runtime::{ErrorKind, FOREVER, Policy};

use crate::client::{Fixture, KEY, Ran, Replayed, UNKNOWN, keyed, ran, replayed, send, with_key};

/// The JSON of a payment of x402.
const PAYMENT: &str = r#"{
    "x402Version": 2,
    "accepted": { "scheme": "exact", "amount": "10" },
    "extensions": { "payment-identifier": { "info": { "id": "pay_7d5d747be160e280" } } }
}"#;

/// A request with a key as requests of this profile have it.
fn posted(profile: &Profile) -> Builder {
    let (name, key) = match profile.name() {
        "x402" => ("payment-signature", STANDARD.encode(PAYMENT)),
        "iceberg_rest" => (
            "idempotency-key",
            "019de3f4-15aa-7c89-8d3a-6f5e4b3c2a1d".to_owned(),
        ),
        _ => ("idempotency-key", KEY.to_owned()),
    };
    Request::post("/orders").header(name, key)
}

fn with(request: Builder, body: impl Into<Body>) -> Request {
    request.body(body.into()).unwrap()
}

/// What becomes of a key after a status: `=` it is stored; `o` it is released, and accepts its own request alone; `*` it is
/// released, and accepts a corrected one; `?` it is unknown.
#[tokio::test]
async fn each_profile_decides_what_of_a_status_is_kept() {
    let statuses = [
        200, 303, 400, 401, 402, 404, 408, 409, 419, 422, 429, 500, 501, 503, 504,
    ];
    let mut table = String::new();
    for profile in [
        Profile::default(),
        Profile::draft(),
        Profile::stripe_v1(),
        Profile::stripe_v2(),
        Profile::acp(),
        Profile::ucp(),
        Profile::x402(),
        Profile::iceberg_rest(),
    ] {
        let mut line = String::new();
        for status in statuses {
            let fixture = Fixture::new();
            let layer = fixture.layer().profile(profile.clone());
            let shop = fixture.orders(layer, move |run| {
                let status = if run == 1 { status } else { 200 };
                (StatusCode::from_u16(status).unwrap(), run.to_string())
            });
            let order = async |body| send(&shop, with(posted(&profile), body)).await;
            assert_eq!(order("tea").await.status, status);
            let other = order("rum").await;
            let ran_other = fixture.runs() == 2;
            let again = order("tea").await;
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
==**=*?==**?oo? none
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

/// Finds a second run after a settlement that ended with an error: the payment may have been made. x402's middleware
/// verifies before the handler and settles after it, and answers 402 in each case.
#[tokio::test]
async fn a_402_of_a_paid_request_is_treated_by_what_it_says_of_the_settlement() {
    for (settlement, again) in [
        ("payment-required", ran("2")),
        ("payment-response", Replayed(402, "1")),
        ("x-none", UNKNOWN),
    ] {
        let fixture = Fixture::new();
        let layer = fixture.layer().profile(Profile::x402());
        let shop = fixture.orders(layer, move |run| {
            let status = if run == 1 { 402 } else { 200 };
            let status = StatusCode::from_u16(status).unwrap();
            (status, [(settlement, "e30=")], run.to_string())
        });
        let paid = || with(posted(&Profile::x402()), "");
        let rows = [
            (settlement, paid(), Ran(402, "1")),
            (settlement, paid(), again),
        ];
        fixture.walk(&shop, rows).await;
    }
}

#[tokio::test]
async fn a_key_is_echoed_as_it_was_sent() {
    let layer = |fixture: &Fixture| fixture.layer().echo_key(true).max_body_bytes(8);
    let fixture = Fixture::new();
    let orders = |fixture: &Fixture, layer| fixture.orders(layer, |run| run.to_string());
    let shop = orders(&fixture, layer(&fixture));
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
    let in_header = layer(&fixture).key_source(KeySource::header("x-key"));
    let shop = orders(&fixture, in_header);
    let request = || with(Request::post("/orders").header("x-key", "a"), "");
    for _ in 0..2 {
        assert_eq!(send(&shop, request()).await.header("x-key"), Some("a"));
    }
    let fixture = Fixture::new();
    let in_query = layer(&fixture).key_source(KeySource::query("key"));
    let shop = orders(&fixture, in_query);
    let answer = send(&shop, with(Request::post("/orders?key=a"), "")).await;
    assert_eq!(answer.header("idempotency-key"), None);
}

#[tokio::test]
async fn the_life_of_a_key_is_published() {
    type Set = fn(IdempotencyLayer) -> IdempotencyLayer;
    let by_default: Set = |layer| layer;
    let of_profile: Set = |layer| layer.profile(Profile::ucp()).echo_life("x-life");
    let short: Set = |layer| layer.ttl(Duration::from_secs(90));
    let short_errors: Set = |layer| layer.error_ttl(Duration::from_mins(1));
    let endless_errors: Set = |layer| layer.error_ttl(FOREVER);
    for (set, seconds, text) in [
        (by_default, 24 * 3_600, "PT24H"),
        (of_profile, 48 * 3_600, "PT48H"),
        (short, 90, "PT1M30S"),
        (short_errors, 60, "PT1M"),
        (endless_errors, 24 * 3_600, "PT24H"),
    ] {
        let fixture = Fixture::new();
        let layer = set(fixture.layer().echo_life("X-Life"));
        assert_eq!(layer.life().unwrap(), Duration::from_secs(seconds));
        let shop = fixture.orders(layer.keys(KeyRules::default()), |run| run.to_string());
        for body in ["tea", "tea", "rum"] {
            let answer = send(&shop, with_key(KEY, body)).await;
            assert_eq!(answer.header("x-life"), Some(text), "{answer:?}");
        }
        let without = send(&shop, with(Request::post("/orders"), "")).await;
        assert_eq!(without.header("x-life"), None);
    }
    let fixture = Fixture::new();
    let invalid = fixture.layer().ttl(Duration::ZERO);
    assert!(matches!(
        invalid.life().unwrap_err().kind(),
        ErrorKind::InvalidPolicy
    ));
}

/// Every setting of a profile can be changed afterwards, and is printed.
#[tokio::test]
async fn each_setting_of_a_profile_can_be_changed_and_is_printed() {
    /// The setters that a layer and a profile share.
    macro_rules! changed {
        ($of:expr) => {
            $of.methods([Method::PUT])
                .optional()
                .key_source(KeySource::query("k"))
                .keys(KeyRules::default())
                .key_domain(KeyDomain::Caller)
                .store_header("x-a")
                .never_store(["etag"])
                .echo_key(false)
                .echo_life("x-b")
        };
    }
    let fixture = Fixture::new();
    let of_layer = fixture
        .layer()
        .ttl(Duration::from_secs(1))
        .methods([Method::PUT])
        .profile(Profile::acp());
    let text = |layer: &IdempotencyLayer| layer.as_profile().to_string();
    assert_eq!(text(&of_layer), Profile::acp().to_string());
    let ttl = Duration::from_secs(7);
    let of_layer = changed!(of_layer.ttl(ttl));
    let of_profile = changed!(Profile::acp().policy(Policy::new().ttl(ttl)));
    let text = text(&of_layer);
    assert_eq!(text, of_profile.to_string());
    for line in [
        "methods: PUT",
        "required: no",
        "key_source: query parameter `k`",
        "keys: quoted or bare in a header; at most 255 characters",
        "key_domain: caller",
        "stored headers: the usual, x-a, not etag",
        "echo_key: no",
        "echo_life: x-b",
        "ttl: 7s",
        "on_running: Reject",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
    let shop = fixture.orders(of_layer, |run| run.to_string());
    let by = |method| with(Request::builder().method(method).uri("/orders?k=a"), "");
    let rows = [
        ("first", by(Method::PUT), ran("1")),
        ("again", by(Method::PUT), replayed("1")),
        (
            "a method that is not protected",
            by(Method::PATCH),
            ran("2"),
        ),
    ];
    fixture.walk(&shop, rows).await;
}
