//! Responses that ask for the same request with something added: none of them is the answer of its key.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, HeaderName, Request, StatusCode};
use idem_runtime::http::{Fingerprinter, IdempotencyLayer, StatusPolicy};

use crate::client::{Fixture, REUSED, Ran, Replayed, Seen, keyed, ran, replayed, routed};

/// A challenge: its status, its headers, its body, and the header that the repeat adds.
#[derive(Clone, Copy, Debug)]
struct ChallengeCase(u16, &'static str, &'static str, &'static str);

const CHALLENGES: &str = r#"401 | www-authenticate: Bearer | | authorization
407 | proxy-authenticate: Basic | | proxy-authorization
411 | | | content-length
417 | | | x-without-expect
421 | | | x-connection
425 | | | x-late
426 | upgrade: h2c | | upgrade
428 | | | if-match
511 | | | x-logged-in
402 | content-type: application/json, payment-required: e30= | {} | payment-signature
402 | www-authenticate: L402 macaroon | | authorization
402 | content-type: application/json | {"x402Version":1,"accepts":[]} | x-payment"#;

fn challenges() -> impl Iterator<Item = ChallengeCase> {
    CHALLENGES.lines().map(|line| {
        let parts: Vec<_> = line.split('|').map(str::trim).collect();
        ChallengeCase(parts[0].parse().unwrap(), parts[1], parts[2], parts[3])
    })
}

/// A service that answers with the challenge until the header is present.
fn service(fixture: &Fixture, layer: IdempotencyLayer, challenge: ChallengeCase) -> Router {
    let ChallengeCase(status, added, body, wanted) = challenge;
    let fixture = fixture.clone();
    let handler = move |headers: HeaderMap, _: Bytes| async move {
        let run = fixture.run();
        if headers.contains_key(wanted) {
            return format!("run {run}").into_response();
        }
        let mut response: Response = (StatusCode::from_u16(status).unwrap(), body).into_response();
        for header in added.split(", ").filter(|header| !header.is_empty()) {
            let (name, value) = header.split_once(": ").unwrap();
            response.headers_mut().insert(name, value.parse().unwrap());
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

/// The client's view of the challenge itself.
fn challenged(ChallengeCase(status, _, body, _): ChallengeCase) -> Seen {
    Ran(status, body)
}

#[tokio::test]
async fn the_request_that_meets_a_challenge_runs_and_is_the_one_that_is_replayed() {
    let [careful, draft, stripe] = [
        StatusPolicy::careful,
        StatusPolicy::draft,
        StatusPolicy::stripe,
    ];
    for challenge in challenges() {
        for policy in [careful(), draft(), stripe()] {
            let row = format!("{challenge:?} {policy:?}");
            let fixture = Fixture::new();
            let layer = fixture.layer().status_policy(policy);
            let service = service(&fixture, layer, challenge);
            let met = Some((challenge.3, "1"));
            let rows = [
                (&row, asked(None), challenged(challenge)),
                (&row, asked(None), challenged(challenge)),
                (&row, asked(met), ran("run 3")),
                (&row, asked(met), replayed("run 3")),
            ];
            fixture.walk(&service, rows).await;
        }
    }
}

/// Unless the fingerprint ignores the payment.
#[tokio::test]
async fn a_paid_response_is_for_its_payment_alone() {
    let in_a_header = challenges().filter(|it| it.0 == 402 && it.3 != "authorization");
    for (challenge, ignores) in in_a_header.flat_map(|it| [(it, false), (it, true)]) {
        let fixture = Fixture::new();
        let (rules, seen) = if ignores {
            (Fingerprinter::new().ignore_payment(), replayed("run 2"))
        } else {
            (Fingerprinter::new(), REUSED)
        };
        let service = service(&fixture, fixture.layer().fingerprint(rules), challenge);
        let with = |sum| asked(Some((challenge.3, sum)));
        let rows = [
            ("no payment", asked(None), challenged(challenge)),
            ("paid", with("paid"), ran("run 2")),
            ("no payment again", asked(None), seen),
            ("another payment", with("other"), seen),
        ];
        fixture.walk(&service, rows).await;
    }
}

/// Finds a second run of a handler whose late settlement failed: the response asks for another one.
#[tokio::test]
async fn a_402_for_a_request_with_a_payment_is_an_answer() {
    for challenge in challenges().filter(|it| it.0 == 402) {
        for payment in ["payment-signature", "x-payment"] {
            // With a header other than the accepted one.
            if payment == challenge.3 {
                continue;
            }
            let fixture = Fixture::new();
            let service = service(&fixture, fixture.layer(), challenge);
            let paid = |sum| asked(Some((payment, sum)));
            let rows = [
                (payment, paid("1"), challenged(challenge)),
                (payment, paid("1"), Replayed(402, challenge.2)),
                (payment, paid("2"), REUSED),
            ];
            fixture.walk(&service, rows).await;
        }
    }
}
