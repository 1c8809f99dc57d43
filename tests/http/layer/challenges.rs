//! Responses that ask for the same request with something added: none of them is the answer of its key.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, HeaderName, Request, StatusCode};
use idem_runtime::http::{Fingerprinter, IdempotencyLayer, KeyVerdict, StatusPolicy};

use crate::client::{Answer, Fixture, keyed, routed, send};

/// A challenge: its status, its headers, its body, and the header that the repeat adds.
type Challenge = (
    u16,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
);

const JSON: (&str, &str) = ("content-type", "application/json");

const CHALLENGES: &[Challenge] = &[
    (401, &[("www-authenticate", "Bearer")], "", "authorization"),
    (
        407,
        &[("proxy-authenticate", "Basic")],
        "",
        "proxy-authorization",
    ),
    (411, &[], "", "content-length"),
    (417, &[], "", "x-without-expect"),
    (421, &[], "", "x-connection"),
    (425, &[], "", "x-late"),
    (426, &[("upgrade", "h2c")], "", "upgrade"),
    (428, &[], "", "if-match"),
    (511, &[], "", "x-logged-in"),
    (
        402,
        &[JSON, ("payment-required", "e30=")],
        "{}",
        "payment-signature",
    ),
    (
        402,
        &[("www-authenticate", "L402 macaroon")],
        "",
        "authorization",
    ),
    (
        402,
        &[JSON],
        r#"{"x402Version":1,"accepts":[]}"#,
        "x-payment",
    ),
];

/// A service that answers with the challenge until the request has its header.
fn service(fixture: &Fixture, layer: IdempotencyLayer, challenge: &'static Challenge) -> Router {
    let (status, added, body, wanted) = *challenge;
    let fixture = fixture.clone();
    let handler = move |headers: HeaderMap, _: Bytes| async move {
        let run = fixture.run();
        if headers.contains_key(wanted) {
            return format!("run {run}").into_response();
        }
        let mut response: Response = (StatusCode::from_u16(status).unwrap(), body).into_response();
        for (name, value) in added {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        response
    };
    routed(post(handler), layer)
}

fn asked(header: Option<(&str, &str)>) -> Request<Body> {
    let mut request = keyed("/orders").body(Body::from("tea")).unwrap();
    if let Some((name, value)) = header {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

fn policies() -> [StatusPolicy; 3] {
    [
        StatusPolicy::careful(),
        StatusPolicy::draft(),
        StatusPolicy::stripe(),
    ]
}

async fn of(service: &Router, header: Option<(&str, &str)>) -> Answer {
    send(service, asked(header)).await
}

#[tokio::test]
async fn the_request_that_meets_a_challenge_runs_and_is_the_one_that_is_replayed() {
    for challenge in CHALLENGES {
        let (status, _, body, wanted) = *challenge;
        for policy in policies() {
            let fixture = Fixture::new();
            let layer = fixture.layer().status_policy(policy.clone());
            let service = service(&fixture, layer, challenge);
            for _ in 0..2 {
                let first = of(&service, None).await;
                assert_eq!((first.said(), first.is_replayed()), ((status, body), false));
            }
            let added = Some((wanted, "1"));
            let met = of(&service, added).await;
            assert_eq!(met.replay(), (false, "run 3"), "{status} {policy:?}");
            let again = of(&service, added).await;
            assert_eq!(again.replay(), (true, "run 3"), "{status} {policy:?}");
        }
    }
}

#[tokio::test]
async fn a_paid_response_is_for_its_payment_alone() {
    for challenge in CHALLENGES {
        let (_, _, _, wanted) = *challenge;
        if !["payment-signature", "x-payment"].contains(&wanted) {
            continue;
        }
        let fixture = Fixture::new();
        let service = service(&fixture, fixture.layer(), challenge);
        of(&service, None).await;
        assert_eq!(
            of(&service, Some((wanted, "paid"))).await.replay(),
            (false, "run 2")
        );
        for other in [None, Some((wanted, "other"))] {
            assert_eq!(of(&service, other).await.problem(), (422, "key-reused"));
        }
        assert_eq!(fixture.runs(), 2);
    }
}

#[tokio::test]
async fn a_service_may_ignore_the_payment() {
    let fixture = Fixture::new();
    let layer = fixture
        .layer()
        .fingerprint(Fingerprinter::new().ignore_payment());
    let challenge = &CHALLENGES[9];
    let service = service(&fixture, layer, challenge);
    of(&service, None).await;
    let paid = Some(("payment-signature", "paid"));
    assert_eq!(of(&service, paid).await.replay(), (false, "run 2"));
    assert_eq!(of(&service, None).await.replay(), (true, "run 2"));
}

#[tokio::test]
async fn a_402_without_a_challenge_is_an_answer() {
    const DECLINED: &[Challenge] = &[
        (402, &[JSON], r#"{"error":"card_declined"}"#, "x-payment"),
        (402, &[], "declined", "x-payment"),
        (402, &[JSON], r#"{"data":{"x402Version":1}}"#, "x-payment"),
    ];
    for declined in DECLINED {
        for policy in policies() {
            let fixture = Fixture::new();
            let layer = fixture.layer().status_policy(policy);
            let service = service(&fixture, layer, declined);
            let first = of(&service, None).await;
            let again = of(&service, None).await;
            assert_eq!((first.is_replayed(), again.is_replayed()), (false, true));
            assert_eq!((again.said(), fixture.runs()), ((402, declined.2), 1));
        }
    }
}

/// Finds a second run of a handler whose payment was settled after it, and failed: the response asks for another one.
#[tokio::test]
async fn a_402_for_a_request_with_a_payment_is_an_answer() {
    for challenge in CHALLENGES.iter().filter(|(status, ..)| *status == 402) {
        // With the other header than the one that the service accepts.
        let others = |payment: &&str| *payment != challenge.3;
        for payment in ["payment-signature", "x-payment"]
            .into_iter()
            .filter(others)
        {
            let fixture = Fixture::new();
            let service = service(&fixture, fixture.layer(), challenge);
            let paid = |sum| Some((payment, sum));
            assert!(!of(&service, paid("1")).await.is_replayed());
            let again = of(&service, paid("1")).await;
            assert_eq!(
                (again.said(), again.is_replayed()),
                ((402, challenge.2), true)
            );
            assert_eq!(of(&service, paid("2")).await.problem(), (422, "key-reused"));
            assert_eq!(fixture.runs(), 1);
        }
    }
}

#[tokio::test]
async fn a_verdict_that_is_set_holds_for_a_challenge() {
    let fixture = Fixture::new();
    let stored = StatusPolicy::careful().on(StatusCode::PAYMENT_REQUIRED, KeyVerdict::Store);
    let layer = fixture.layer().status_policy(stored);
    let service = service(&fixture, layer, &CHALLENGES[9]);
    of(&service, None).await;
    assert!(of(&service, None).await.is_replayed());
    assert_eq!(fixture.runs(), 1);
}
