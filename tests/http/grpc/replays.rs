//! A repeat gets message, metadata and status of the first call.

use std::convert::Infallible;
use std::sync::Arc;

use http::HeaderMap;
use idem_runtime::grpc::{GrpcLayer, reply};
use idem_runtime::http::IdempotencyLayer;
use idem_runtime::{Engine, ErrorKind, Reconciled};
use idem_tests::shop::patiently;
use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::codec::BufferSettings;
use tonic::metadata::MetadataValue;
use tonic::service::InterceptorLayer;
use tonic::{Code, Response, Status};
use tonic_prost::ProstDecoder;
use tonic_types::{ErrorDetails, StatusExt as _};
use tower::layer::util::Stack;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::payments::{
    CHARGE, KEY, Order, Payments, Receipt, Shop, frame, keyed, numbered, order, raw, receipt,
    refused, with,
};
use super::{layer, open};
use crate::client::{Fixture, data, frames};

fn assert_detailed(status: &Status) {
    let info = status.get_details_error_info().expect("its details");
    assert_eq!(info.reason, "BALANCE_TOO_LOW");
    assert_eq!(info.metadata["missing"], "7");
}

/// A service whose every answer has metadata of its own; tea is sold out.
fn described() -> Payments {
    Payments::new(|run, order| async move {
        let stamp = |metadata: &mut tonic::metadata::MetadataMap| {
            metadata.append("x-run", MetadataValue::from(run));
            metadata.append("x-note", "one".parse().unwrap());
            metadata.append("x-note", "two".parse().unwrap());
            metadata.insert_bin("x-proof-bin", MetadataValue::from_bytes(&[0, 1, 255]));
            metadata.insert("x-request-id", MetadataValue::from(run));
        };
        if order.get_ref().item == "tea" {
            let text = "the balance of müller is 100% too low";
            let missing = [("missing".to_owned(), "7".to_owned())];
            let details = ErrorDetails::with_error_info("BALANCE_TOO_LOW", "shop.test", missing);
            let mut status = Status::with_error_details(Code::FailedPrecondition, text, details);
            stamp(status.metadata_mut());
            return Err(status);
        }
        let mut charged = receipt(run);
        stamp(charged.metadata_mut());
        Ok(charged)
    })
}

#[tokio::test]
async fn a_second_client_gets_the_same_message_metadata_and_trailers() {
    for (item, code) in [("rum", Code::Ok), ("tea", Code::FailedPrecondition)] {
        let (_fixture, shop) = open(described()).await;
        let body = frame(order(item).get_ref());
        let first = shop.client().await.raw(raw(KEY, body.clone())).await;
        let again = shop.client().await.raw(raw(KEY, body)).await;
        assert_eq!((first.status().code(), shop.payments.runs()), (code, 1));
        let (mut first, is_replayed) = first.lasting();
        assert!(!is_replayed);
        // It is an id of the first request.
        assert_eq!(first.headers.remove("x-request-id").unwrap(), "1");
        assert_eq!(again.lasting(), (first, true), "{item}");
    }
}

#[tokio::test]
async fn a_second_client_gets_the_same_answer_through_the_library() {
    let (_fixture, shop) = open(described()).await;
    let (one, other) = (shop.client().await, shop.client().await);
    assert_eq!(numbered(one.charge(order("rum")).await), (1, false));
    let again = other.charge(order("rum")).await.unwrap();
    let proof = again.metadata().get_bin("x-proof-bin").unwrap();
    assert_eq!(proof.to_bytes().unwrap()[..], [0, 1, 255]);
    let notes = again.metadata().get_all("x-note").iter();
    assert_eq!(notes.collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(numbered(Ok(again)), (1, true));

    let first = one.charge(keyed("tea", "tea")).await.unwrap_err();
    let again = other.charge(keyed("tea", "tea")).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    assert_eq!(again.message(), "the balance of müller is 100% too low");
    assert_detailed(&again);
    assert_eq!(
        (again.message(), again.details()),
        (first.message(), first.details())
    );
    assert_eq!(again.metadata().get("x-run").unwrap(), "2");
    assert_eq!(shop.payments.runs(), 2);
}

/// A service that sends its own trailers, as another library may.
#[tokio::test]
async fn trailers_of_a_service_are_replayed_as_trailers() {
    let fixture = Fixture::new();
    let service = service_fn(async |_| {
        let (source, body) = frames();
        source.send(data(&b"\0\0\0\0\x02\x08\x07"[..])).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        trailers.insert("x-ledger", "closed".parse().unwrap());
        source
            .send(Ok(http_body::Frame::trailers(trailers)))
            .unwrap();
        Ok::<_, Infallible>(http::Response::new(body))
    });
    let service = layer(fixture.layer()).layer(service);
    for is_replay in [false, true] {
        let call = raw(KEY, frame(order("rum").get_ref()));
        let mut client = tonic::client::Grpc::new(service.clone());
        client.ready().await.unwrap();
        let response = service.clone().oneshot(call).await.unwrap();
        assert_eq!(
            response.headers().contains_key("idempotent-replayed"),
            is_replay
        );
        let body = Body::new(response.into_body());
        let codec = ProstDecoder::<Receipt>::new(BufferSettings::default());
        let mut stream =
            tonic::Streaming::new_response(codec, body, 200.try_into().unwrap(), None, None);
        assert_eq!(stream.message().await.unwrap().unwrap().number, 7);
        let trailers = stream.trailers().await.unwrap().unwrap();
        assert_eq!(trailers.get("x-ledger").unwrap(), "closed");
    }
}

#[tokio::test]
async fn concurrent_repeats_run_once_and_get_one_answer() {
    let go_on = Arc::new(Semaphore::new(0));
    let through = Arc::clone(&go_on);
    let (fixture, shop) = open(Payments::new(move |run, _| {
        let through = Arc::clone(&through);
        async move {
            through.acquire().await.unwrap().forget();
            Ok(receipt(run))
        }
    }))
    .await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let client = shop.client().await;
        clients.push(tokio::spawn(async move {
            numbered(client.charge(order("rum")).await)
        }));
    }
    fixture.saw("claimed", 1).await;
    go_on.add_permits(8);
    let mut executed = 0;
    for client in clients {
        let (number, is_replayed) = patiently("an answer", client).await.unwrap();
        assert_eq!(number, 1);
        executed += usize::from(!is_replayed);
    }
    assert_eq!((executed, shop.payments.runs()), (1, 1));
}

/// The client is gone: its method runs to its end, and its repeat gets the answer.
#[tokio::test]
async fn a_call_whose_client_has_left_runs_to_its_end() {
    let go_on = Arc::new(Semaphore::new(0));
    let through = Arc::clone(&go_on);
    let (fixture, shop) = open(Payments::new(move |run, _| {
        let through = Arc::clone(&through);
        async move {
            through.acquire().await.unwrap().forget();
            Ok(receipt(run))
        }
    }))
    .await;
    let client = shop.client().await;
    let first = tokio::spawn(async move { client.charge(order("rum")).await });
    fixture.saw("claimed", 1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    go_on.add_permits(1);
    let again = shop.client().await.charge(order("rum")).await;
    assert_eq!((numbered(again), shop.payments.runs()), ((1, true), 1));
}

#[tokio::test]
async fn scopes_are_apart() {
    let fixture = Fixture::new();
    let shop = Shop::open(Payments::numbered(), layer(fixture.scoped())).await;
    let client = shop.client().await;
    let of = |tenant| with("x-tenant", tenant, order("rum"));
    for (tenant, answer) in [
        ("acme", (1, false)),
        ("umbra", (2, false)),
        ("acme", (1, true)),
        ("umbra", (2, true)),
    ] {
        assert_eq!(
            numbered(client.charge(of(tenant)).await),
            answer,
            "{tenant}"
        );
    }
    let stranger = client.charge(order("rum")).await;
    let unknown = (Code::Unauthenticated, "CALLER_UNKNOWN".to_owned());
    assert_eq!((refused(stranger), shop.payments.runs()), (unknown, 2));
}

/// The caller that a layer outside has authenticated.
#[derive(Clone)]
struct Caller(String);

#[tokio::test]
async fn the_scope_is_the_caller_that_a_layer_outside_has_authenticated() {
    let authentication = InterceptorLayer::new(|mut call: tonic::Request<()>| {
        let token = call.metadata().get("authorization");
        let token = token.and_then(|token| token.to_str().ok()?.strip_prefix("token of "));
        let caller = token.ok_or_else(|| Status::unauthenticated("who are you?"))?;
        let caller = Caller(caller.to_owned());
        call.extensions_mut().insert(caller);
        Ok(call)
    });
    let fixture = Fixture::new();
    let http = IdempotencyLayer::scoped(&fixture.engine, "shop.grpc", |call| {
        Some(call.extensions.get::<Caller>()?.0.clone())
    });
    let layers = Stack::new(layer(http), authentication);
    let shop = Shop::serve(Payments::numbered(), layers).await;
    let client = shop.client().await;
    for (caller, answer) in [
        ("acme", (1, false)),
        ("umbra", (2, false)),
        ("acme", (1, true)),
    ] {
        let token = format!("token of {caller}");
        let charged = client
            .charge(with("authorization", &token, order("rum")))
            .await;
        assert_eq!(numbered(charged), answer, "{caller}");
    }
    let stranger = client.charge(order("rum")).await.unwrap_err();
    assert_eq!(
        (stranger.message(), shop.payments.runs()),
        ("who are you?", 2)
    );
}

#[tokio::test]
async fn the_key_is_in_the_metadata_that_the_setting_names() {
    let fixture = Fixture::new();
    let named = layer(fixture.layer()).key_name("x-shop-request");
    let shop = Shop::open(Payments::numbered(), named).await;
    let client = shop.client().await;
    let of = |key| with("x-shop-request", key, order("rum"));
    assert_eq!(numbered(client.charge(of("a")).await), (1, false));
    assert_eq!(numbered(client.charge(of("b")).await), (2, false));
    assert_eq!(numbered(client.charge(of("\"a\"")).await), (1, true));
    let missing = client.charge(order("rum")).await;
    let text = missing.as_ref().unwrap_err().message().to_owned();
    assert!(
        text.contains("needs an `x-shop-request` in its metadata"),
        "{text}"
    );
    assert_eq!(
        refused(missing),
        (Code::InvalidArgument, "KEY_MISSING".into())
    );
    for name in ["x-key-bin", "grpc-key", "not a name", ""] {
        let layer = layer(fixture.layer());
        let named = std::panic::AssertUnwindSafe(|| layer.key_name(name));
        let panic = std::panic::catch_unwind(named).unwrap_err();
        let text = panic.downcast::<String>().unwrap();
        assert!(text.contains(&format!("{name:?}")), "{text}");
    }
}

#[tokio::test]
async fn a_large_message_is_stored_and_replayed() {
    let scan: Vec<u8> = (0..1_500_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let back = scan.clone();
    let (_fixture, shop) = open(Payments::new(move |number, order| {
        assert_eq!(order.into_inner().scan, back);
        let scan = back.clone();
        async move { Ok(Response::new(Receipt { number, scan })) }
    }))
    .await;
    for is_replay in [false, true] {
        let mut order = order("rum");
        order.get_mut().scan.clone_from(&scan);
        let charged = shop.client().await.charge(order).await.unwrap();
        assert!(charged.get_ref().scan == scan);
        assert_eq!(numbered(Ok(charged)), (1, is_replay));
    }
}

#[tokio::test]
async fn a_rule_of_the_service_decides_which_calls_are_equal() {
    let fixture = Fixture::new();
    let by_item = layer(fixture.layer()).fingerprint(|call, message| {
        assert_eq!(call.uri.path(), CHARGE);
        let order = <Order as prost::Message>::decode(message).ok()?;
        Some(order.item.into_bytes())
    });
    let shop = Shop::open(Payments::numbered(), by_item).await;
    let client = shop.client().await;
    assert_eq!(numbered(client.charge(order("rum")).await), (1, false));
    let mut dearer = order("rum");
    dearer.get_mut().cents = 999;
    assert_eq!(numbered(client.charge(dearer).await), (1, true));
    let reused = (Code::FailedPrecondition, "KEY_REUSED".to_owned());
    assert_eq!(refused(client.charge(order("tea")).await), reused);
}

/// A list of the service's own keeps an error's status and details.
#[tokio::test]
async fn metadata_that_the_settings_exclude_are_not_replayed() {
    for (set, left) in [
        (
            (|layer| layer.never_store(["x-note"])) as fn(IdempotencyLayer) -> IdempotencyLayer,
            ["x-proof-bin", "x-run"].as_slice(),
        ),
        (|layer| layer.store_only(["x-run"]), &["x-run"]),
        (
            |layer| layer.store_only(["x-run"]).store_header("x-note"),
            &["x-note", "x-note", "x-run"],
        ),
    ] {
        let fixture = Fixture::new();
        let shop = Shop::open(described(), layer(set(fixture.layer()))).await;
        let client = shop.client().await;
        for item in ["rum", "tea"] {
            for is_replay in [false, true] {
                let charged = client.charge(keyed(item, item)).await;
                let metadata = match &charged {
                    Ok(charged) => charged.metadata(),
                    Err(status) => {
                        assert_detailed(status);
                        status.metadata()
                    }
                };
                let metadata = metadata.clone().into_headers();
                let names = metadata.iter().map(|(name, _)| name.as_str());
                let mut names: Vec<_> = names.filter(|name| name.starts_with("x-")).collect();
                names.sort_unstable();
                let all = ["x-note", "x-note", "x-proof-bin", "x-request-id", "x-run"];
                assert_eq!(names, if is_replay { left } else { &all }, "{item}");
            }
        }
    }
}

/// By an operator, and by a hook.
#[tokio::test]
async fn a_call_of_unknown_outcome_is_settled_with_the_message_that_its_client_missed() {
    let lost = || Payments::new(|_, _| async { Err(Status::unknown("the provider is silent")) });
    let paid = Receipt {
        number: 77,
        scan: Vec::new(),
    };
    let message = prost::Message::encode_to_vec(&paid);
    let (fixture, shop) = open(lost()).await;
    let client = shop.client().await;
    let grpc = layer(fixture.layer());
    let unknown = (Code::Unknown, "OUTCOME_UNKNOWN".to_owned());
    assert_eq!(
        client.charge(order("rum")).await.unwrap_err().message(),
        "the provider is silent"
    );
    assert_eq!(refused(client.charge(order("rum")).await), unknown);
    // An entry that does not know of gRPC would drop the status.
    let of_http = fixture.layer().entry(None, KEY).await.unwrap();
    let resolved = of_http
        .expect("the call came")
        .resolve_response(reply(Ok(&message)));
    assert_eq!(*resolved.await.unwrap_err().kind(), ErrorKind::NotStored);
    let entry = grpc.entry(None, KEY).await.unwrap().expect("the call came");
    assert!(entry.is_response());
    entry.resolve_response(reply(Ok(&message))).await.unwrap();
    assert_eq!(numbered(client.charge(order("rum")).await), (77, true));
    let settled = client.raw(raw(KEY, frame(order("rum").get_ref()))).await;
    assert!(!settled.headers.contains_key("grpc-status"));
    assert_eq!(settled.trailers.unwrap()["grpc-status"], "0");
    // An error is an answer as well.
    client.charge(keyed("b", "rum")).await.unwrap_err();
    let entry = grpc.entry(None, "b").await.unwrap().expect("the call came");
    let declined: Result<&[u8], _> = Err(Status::failed_precondition("declined"));
    entry.resolve_response(reply(declined)).await.unwrap();
    let declined = client.charge(keyed("b", "rum")).await.unwrap_err();
    assert_eq!(
        (declined.code(), declined.message()),
        (Code::FailedPrecondition, "declined")
    );

    let fixture = Fixture::new();
    let hook = move |_, _| {
        let message = message.clone();
        async move { Ok::<_, Infallible>(Reconciled::Landed(reply(Ok(message)))) }
    };
    let shop = Shop::open(lost(), layer(fixture.layer().reconcile(hook))).await;
    let client = shop.client().await;
    client.charge(order("rum")).await.unwrap_err();
    for _ in 0..2 {
        let found = client.charge(order("rum")).await;
        assert_eq!(found.as_ref().unwrap().get_ref(), &paid);
    }
    assert_eq!(shop.payments.runs(), 1);
}

/// Around one service of several.
#[tokio::test]
async fn a_layer_around_one_service_is_a_service_of_its_name() {
    fn name<S: tonic::server::NamedService>(_: &S) -> &'static str {
        S::NAME
    }
    let engine = Engine::new(idem_runtime::store::memory::MemoryStore::new());
    let layer = GrpcLayer::new(IdempotencyLayer::public(engine, "shop.grpc"));
    assert_eq!(name(&layer.layer(Payments::numbered())), "shop.v1.Payments");
}
