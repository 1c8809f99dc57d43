//! The effect of a call's code on its key.

use std::convert::Infallible;
use std::io;

use idem_runtime::http::{KeyVerdict, StatusPolicy};
use idem_runtime::{Engine, idempotent};
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::layer;
use super::payments::{
    KEY, Order, Payments, Shop, frame, keyed, numbered, order, raw, receipt, refused,
};
use crate::client::{Fixture, data, frames};
use KeyVerdict::{Release, Store, Unknown};

const CODES: [(Code, KeyVerdict); 17] = [
    (Code::Ok, Store),
    (Code::Cancelled, Unknown),
    (Code::Unknown, Unknown),
    (Code::InvalidArgument, Release),
    (Code::DeadlineExceeded, Unknown),
    (Code::NotFound, Release),
    (Code::AlreadyExists, Store),
    (Code::PermissionDenied, Release),
    (Code::ResourceExhausted, Release),
    (Code::FailedPrecondition, Store),
    (Code::Aborted, Unknown),
    (Code::OutOfRange, Release),
    (Code::Unimplemented, Release),
    (Code::Internal, Unknown),
    (Code::Unavailable, Release),
    (Code::DataLoss, Unknown),
    (Code::Unauthenticated, Release),
];

/// A service whose first run ends with this code, later ones well.
fn failing(code: Code) -> Payments {
    Payments::new(move |run, _| async move {
        if run > 1 || code == Code::Ok {
            return Ok(receipt(run));
        }
        let mut metadata = MetadataMap::new();
        metadata.insert("x-try", "1".parse().unwrap());
        Err(Status::with_metadata(code, "it failed", metadata))
    })
}

/// The second call after a first one with this code.
async fn walk(shop: &Shop, code: Code, verdict: KeyVerdict) {
    let client = shop.client().await;
    let told = |status: Status| (status.code(), status.message().to_owned());
    let first = client.charge(order("rum")).await;
    assert_eq!(first.is_ok(), code == Code::Ok);
    if let Err(status) = first {
        assert_eq!(told(status), (code, "it failed".to_owned()));
    }
    let again = client.charge(order("rum")).await;
    match verdict {
        Store if code == Code::Ok => assert_eq!(numbered(again), (1, true)),
        Store => assert_eq!(told(again.unwrap_err()), (code, "it failed".to_owned())),
        Release => assert_eq!(numbered(again), (2, false), "{code:?}"),
        _ => assert_eq!(
            refused(again),
            (Code::Unknown, "OUTCOME_UNKNOWN".into()),
            "{code:?}"
        ),
    }
    let runs = if verdict == Release { 2 } else { 1 };
    assert_eq!(shop.payments.runs(), runs, "{code:?}");
}

#[tokio::test]
async fn a_code_stores_the_answer_releases_the_key_or_leaves_the_outcome_unknown() {
    for (code, verdict) in CODES {
        let fixture = Fixture::new();
        let shop = Shop::open(failing(code), layer(fixture.layer())).await;
        walk(&shop, code, verdict).await;
        let entry = layer(fixture.layer())
            .entry(None, KEY)
            .await
            .unwrap()
            .unwrap();
        let state = match (code, verdict) {
            (Code::Ok, _) | (_, Release) => "Answered(Value)",
            (_, Store) => "Answered(Error)",
            _ => "Unknown",
        };
        assert_eq!(format!("{:?}", entry.state()), state, "{code:?}");
    }
}

#[tokio::test]
async fn a_policy_of_http_decides_by_the_status_that_a_code_stands_for() {
    let bold = StatusPolicy::careful().ambiguous(Release);
    for (policy, changed) in [(bold, Release), (StatusPolicy::draft(), Store)] {
        for (code, verdict) in CODES {
            let verdict = match (changed, verdict, code) {
                (_, Unknown, _) => changed,
                (Store, Release, Code::Unauthenticated) => Release,
                (Store, _, _) => Store,
                (_, verdict, _) => verdict,
            };
            let fixture = Fixture::new();
            let http = fixture.layer().status_policy(policy.clone());
            let shop = Shop::open(failing(code), layer(http)).await;
            walk(&shop, code, verdict).await;
        }
    }
}

#[tokio::test]
async fn a_service_sorts_an_error_by_all_that_it_says() {
    for (code, by_default) in CODES.into_iter().skip(1) {
        for verdict in [Some(Store), Some(Release), Some(Unknown), None] {
            let fixture = Fixture::new();
            let layer = layer(fixture.layer()).sort(move |status| {
                assert_eq!((status.code(), status.message()), (code, "it failed"));
                assert_eq!(status.metadata().get("x-try").unwrap(), "1");
                verdict
            });
            let shop = Shop::open(failing(code), layer).await;
            walk(&shop, code, verdict.unwrap_or(by_default)).await;
        }
    }
}

#[tokio::test]
async fn a_verdict_in_the_extensions_of_an_answer_comes_first() {
    for (verdict, again) in [(Store, (1, true)), (Release, (2, false))] {
        let payments = Payments::new(move |run, _| async move {
            let mut charged = receipt(run);
            charged.extensions_mut().insert(verdict);
            Ok(charged)
        });
        let fixture = Fixture::new();
        let shop = Shop::open(payments, layer(fixture.layer())).await;
        let client = shop.client().await;
        assert_eq!(numbered(client.charge(order("rum")).await), (1, false));
        assert_eq!(numbered(client.charge(order("rum")).await), again);
    }
    // Of an error only a service below tonic's can say it.
    let fixture = Fixture::new();
    let counted = fixture.clone();
    let service = service_fn(move |_| {
        counted.run();
        let mut response: http::Response<Body> = Status::unavailable("down").into_http();
        response.extensions_mut().insert(Store);
        async { Ok::<_, Infallible>(response) }
    });
    let service = layer(fixture.layer()).layer(service);
    for is_replay in [false, true] {
        let call = raw(KEY, frame(order("rum").get_ref()));
        let response = service.clone().oneshot(call).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "14");
        assert_eq!(
            response.headers().contains_key("idempotent-replayed"),
            is_replay
        );
    }
    assert_eq!(fixture.runs(), 1);
}

/// A layer inside answers as HTTP; a service of another library breaks off, or ends without a status.
#[tokio::test]
async fn a_response_without_a_status_of_grpc_says_what_its_http_status_says() {
    let message = &b"\0\0\0\0\x02\x08\x07"[..];
    for (status, ending, verdict) in [
        (200, None, Unknown),
        (200, Some(io::ErrorKind::ConnectionReset), Unknown),
        (503, None, Release),
        (504, None, Unknown),
        (409, None, Store),
    ] {
        let fixture = Fixture::new();
        let counted = fixture.clone();
        let service = service_fn(move |_| {
            counted.run();
            let (source, body) = frames();
            source.send(data(message)).unwrap();
            if let Some(kind) = ending {
                source.send(Err(kind.into())).unwrap();
            }
            let response = http::Response::builder().status(status).body(body).unwrap();
            async { Ok::<_, Infallible>(response) }
        });
        let service = layer(fixture.layer()).layer(service);
        for _ in 0..2 {
            let call = raw(KEY, frame(order("rum").get_ref()));
            let response = service.clone().oneshot(call).await.unwrap();
            drop(axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1_000).await);
        }
        let entry = layer(fixture.layer())
            .entry(None, KEY)
            .await
            .unwrap()
            .unwrap();
        let (state, runs) = match verdict {
            Store => ("Answered(Error)", 1),
            Release => ("Released", 2),
            _ => ("Unknown", 1),
        };
        assert_eq!(
            (&*format!("{:?}", entry.state()), fixture.runs()),
            (state, runs),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_call_whose_method_panicked_is_of_unknown_outcome() {
    let fixture = Fixture::new();
    let payments = Payments::new(|_, _| async { panic!("on purpose") });
    let shop = Shop::open(payments, layer(fixture.layer())).await;
    let first = shop.client().await.charge(order("rum")).await;
    assert!(first.is_err());
    let again = shop.client().await.charge(order("rum")).await;
    assert_eq!(refused(again), (Code::Unknown, "OUTCOME_UNKNOWN".into()));
    assert_eq!(shop.payments.runs(), 1);
}

/// A refused call may be corrected under its key. A call that is to be repeated unchanged may not.
#[tokio::test]
async fn a_key_that_was_released_takes_a_corrected_call_if_the_code_allows_one() {
    for (code, verdict) in CODES {
        if verdict != Release {
            continue;
        }
        let fixture = Fixture::new();
        let shop = Shop::open(failing(code), layer(fixture.layer())).await;
        let client = shop.client().await;
        client.charge(order("rum")).await.unwrap_err();
        let corrected = client.charge(order("tea")).await;
        if matches!(code, Code::Unavailable | Code::Unimplemented) {
            let reused = (Code::FailedPrecondition, "KEY_REUSED".to_owned());
            assert_eq!(refused(corrected), reused, "{code:?}");
        } else {
            assert_eq!(numbered(corrected), (2, false), "{code:?}");
        }
    }
}

/// A charge of each item once; nothing is known of one for tea.
#[idempotent(op = "shop.charge", key = item, on_error = unknown, engine = engine)]
async fn charge(
    item: String,
    cents: u64,
    #[idem(skip)] run: u64,
    #[idem(skip)] engine: &Engine,
) -> Result<u64, Status> {
    match &*item {
        "tea" => Err(Status::aborted(format!("{cents} cents"))),
        _ => Ok(run),
    }
}

/// One claim for layer and function; each refusal settles the layer's key.
#[tokio::test]
async fn a_function_under_the_attribute_has_a_claim_of_its_own() {
    for sorts in [false, true] {
        let fixture = Fixture::new();
        let engine = fixture.engine.clone();
        let payments = Payments::new(move |run, order| {
            let engine = engine.clone();
            async move {
                let Order { item, cents, .. } = order.into_inner();
                Ok(receipt(charge(item, cents, run, &engine).await?))
            }
        });
        let layer = layer(fixture.layer()).sort(move |status| {
            let info = status.get_details_error_info();
            let is_idem = info.is_some_and(|info| info.domain == "idem-runtime");
            (sorts && is_idem).then_some(Release)
        });
        let shop = Shop::open(payments, layer).await;
        let client = shop.client().await;
        // Another key of the client is another call of the method, and the same one of the function.
        for (key, is_replay) in [("key-1", false), ("key-1", true), ("key-2", false)] {
            let charged = client.charge(keyed(key, "rum")).await;
            assert_eq!(numbered(charged), (1, is_replay));
        }
        assert_eq!(shop.payments.runs(), 2);
        // The function refuses other arguments.
        for _ in 0..2 {
            let mut order = keyed("key-3", "rum");
            order.get_mut().cents += 1;
            let reused = (Code::FailedPrecondition, "KEY_REUSED".to_owned());
            assert_eq!(refused(client.charge(order).await), reused);
        }
        assert_eq!(shop.payments.runs(), if sorts { 4 } else { 3 });
        // An outcome that the function does not know is settled in its record, and by default in the layer's too.
        let unknown = (Code::Unknown, "OUTCOME_UNKNOWN".to_owned());
        let aborted = client.charge(keyed("key-4", "tea")).await.unwrap_err();
        assert_eq!(aborted.code(), Code::Aborted);
        assert_eq!(refused(client.charge(keyed("key-5", "tea")).await), unknown);
        let entry = fixture.engine.operation("shop.charge").key("tea").entry();
        entry.await.unwrap().unwrap().resolve(&7_u64).await.unwrap();
        let again = client.charge(keyed("key-5", "tea")).await;
        if sorts {
            assert_eq!(numbered(again), (7, false));
        } else {
            assert_eq!(refused(again), unknown);
        }
    }
}
