//! idem's own refusals: their codes and details. Nothing runs, and nothing is stored.

use std::time::Duration;

use idem_runtime::grpc::GrpcLayer;
use idem_runtime::http::{IdempotencyLayer, KeyRules};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, Error, OnDuplicate, OnRunning};
use idem_tests::faulty::{Fault, Faulty, StoreOperation};
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

use super::layer;
use super::payments::{
    CHARGE, Order, Payments, Receipt, Shop, WATCH, bare, frame, keyed, raw, receipt, with,
};
use crate::client::{Fixture, frames};

const KEY: &str = "key-marker";
const ITEM: &str = "item-marker";
const ANSWER: &[u8] = b"answer-marker";

/// A refusal: code, reason, whether the call is to be sent again, and after which time.
type Expected = (Code, &'static str, bool, Option<Duration>);

const SECOND: Option<Duration> = Some(Duration::from_secs(1));

const KEY_MISSING: Expected = (Code::InvalidArgument, "KEY_MISSING", false, None);
const KEY_INVALID: Expected = (Code::InvalidArgument, "KEY_INVALID", false, None);
const KEY_REUSED: Expected = (Code::FailedPrecondition, "KEY_REUSED", false, None);
const TOO_MANY: Expected = (Code::Unavailable, "TOO_MANY_RUNNING", true, SECOND);
const UNAVAILABLE: Expected = (Code::Unavailable, "UNAVAILABLE", true, SECOND);

fn order() -> Request<Order> {
    keyed(KEY, ITEM)
}

/// Whether the status is this refusal, as a client reads it.
fn assert_refused(status: &Status, (code, reason, is_retryable, retry_after): Expected, row: &str) {
    assert_eq!(status.code(), code, "{row}: {status:?}");
    let details = status.get_error_details();
    let info = details
        .error_info()
        .unwrap_or_else(|| panic!("{row}: {status:?}"));
    assert_eq!(
        (&*info.reason, &*info.domain),
        (reason, "idem-runtime"),
        "{row}"
    );
    assert_eq!(
        info.metadata["retryable"],
        is_retryable.to_string(),
        "{row}"
    );
    let known = ["instance", "retryable"];
    assert!(
        info.metadata.keys().all(|name| known.contains(&&**name)),
        "{row}: {info:?}"
    );
    let told = details.retry_info().map(|info| info.retry_delay.unwrap());
    assert_eq!(told, retry_after, "{row}");
    let pushback = status.metadata().get("grpc-retry-pushback-ms");
    let pushback = pushback.map(|millis| millis.to_str().unwrap().parse().unwrap());
    let pushback = pushback.map(Duration::from_millis);
    assert_eq!(pushback, retry_after.filter(|_| is_retryable), "{row}");
    assert!(!status.message().is_empty(), "{row}");
    let all = format!("{status:?} {details:?} {}", status.details().escape_ascii());
    for marker in [KEY, ITEM, "answer-marker", "scope-marker"] {
        assert!(!all.contains(marker), "{row}: {all}");
    }
}

/// A service that answers at once or on permission, by item.
struct Service {
    payments: Payments,
    go_on: watch::Sender<bool>,
}

impl Service {
    fn new() -> Self {
        let go_on = watch::Sender::new(false);
        let through = go_on.subscribe();
        let payments = Payments::new(move |number, order| {
            let mut through = through.clone();
            async move {
                let order = order.into_inner();
                match &*order.item {
                    "waits" => drop(through.wait_for(|go_on| *go_on).await),
                    "fails" => return Err(Status::internal("it failed")),
                    "is busy" => return Err(Status::unavailable("not tried")),
                    _ => {}
                }
                let scan = ANSWER.to_vec();
                Ok(Response::new(Receipt { number, scan }))
            }
        });
        Self { payments, go_on }
    }
}

type Set = fn(IdempotencyLayer) -> IdempotencyLayer;

/// Each is refused before a method runs, with its row's settings.
#[tokio::test]
async fn a_call_is_refused_by_code_reason_and_time() {
    let too_long = "k".repeat(256);
    let two = with("idempotency-key", KEY, order());
    let as_it_is: Set = |it| it;
    let of_a_form: Set = |it| it.keys(KeyRules::default().accept(|key| key.len() == 36));
    let short: Set = |it| it.max_body_bytes(10);
    let too_large: Expected = (Code::ResourceExhausted, "BODY_TOO_LARGE", false, None);
    let used_up: Set = |it| it.quota(|_, _| Err(Duration::from_secs(90)));
    let later = Some(Duration::from_secs(90));
    let exceeded: Expected = (Code::ResourceExhausted, "QUOTA_EXCEEDED", true, later);
    let cases = [
        ("no key", as_it_is, bare(ITEM), KEY_MISSING),
        ("two keys", as_it_is, two, KEY_INVALID),
        ("an empty key", as_it_is, keyed("", ITEM), KEY_INVALID),
        ("a blank key", as_it_is, keyed("\" \"", ITEM), KEY_INVALID),
        ("a list", as_it_is, keyed("a, b", ITEM), KEY_INVALID),
        ("too long", as_it_is, keyed(&too_long, ITEM), KEY_INVALID),
        ("of another form", of_a_form, order(), KEY_INVALID),
        ("a long message", short, order(), too_large),
        ("no quota", used_up, order(), exceeded),
    ];
    for (row, set, order, expected) in cases {
        let fixture = Fixture::new();
        let shop = Shop::open(Service::new().payments, layer(set(fixture.layer()))).await;
        let refused = shop.client().await.charge(order).await.unwrap_err();
        assert_refused(&refused, expected, row);
        assert_eq!(shop.payments.runs(), 0, "{row}");
    }
}

/// The settings, the items of earlier calls, and the refused one.
#[tokio::test]
async fn a_repeat_is_refused_by_code_reason_and_time() {
    let repeated = Some(Duration::from_hours(24));
    let repeated: Expected = (Code::AlreadyExists, "REQUEST_REPEATED", false, repeated);
    let unknown = |is_retryable| (Code::Unknown, "OUTCOME_UNKNOWN", is_retryable, None);
    let exhausted: Expected = (Code::Unknown, "ATTEMPTS_EXHAUSTED", false, None);
    let lost: Expected = (Code::DataLoss, "ANSWER_LOST", false, None);
    let as_it_is: Set = |it| it;
    let rejects: Set = |it| it.on_duplicate(OnDuplicate::Reject);
    let hooked: Set = |it| {
        it.reconcile(|_, _| async {
            Err::<idem_runtime::Reconciled<http::Response<Vec<u8>>>, _>("down")
        })
    };
    let once: Set = |it| it.max_attempts(std::num::NonZeroU16::new(1));
    let short: Set = |it| it.max_response_bytes(10);
    let cases = [
        ("another message", as_it_is, ["rum", ITEM], KEY_REUSED),
        ("a refused repeat", rejects, [ITEM; 2], repeated),
        ("unknown", as_it_is, ["fails"; 2], unknown(false)),
        ("unknown, and a hook", hooked, ["fails"; 2], unknown(true)),
        ("no attempt", once, ["is busy"; 2], exhausted),
        ("a large answer", short, [ITEM; 2], lost),
    ];
    for (row, set, [first, again], expected) in cases {
        let fixture = Fixture::new();
        let shop = Shop::open(Service::new().payments, layer(set(fixture.layer()))).await;
        let client = shop.client().await;
        let answer = client.charge(keyed(KEY, first)).await;
        assert_eq!(
            answer.is_ok(),
            first == "rum" || first == ITEM,
            "{row}: {answer:?}"
        );
        let refused = client.charge(keyed(KEY, again)).await.unwrap_err();
        assert_refused(&refused, expected, row);
        assert_eq!(shop.payments.runs(), 1, "{row}");
    }
}

#[tokio::test]
async fn a_call_is_refused_while_another_one_runs() {
    let soon = Some(Duration::from_secs(2));
    let running: Expected = (Code::Unavailable, "REQUEST_RUNNING", true, soon);
    let rejects: Set = |it| it.on_running(OnRunning::Reject);
    let one: Set = |it| it.max_running(1);
    let one_of_a_scope: Set = |it| it.max_running_per_scope(1);
    for (row, set, key, expected) in [
        ("with its key", rejects, KEY, running),
        ("of as many as may", one, "other", TOO_MANY),
        ("of its scope", one_of_a_scope, "other", TOO_MANY),
    ] {
        let (fixture, service) = (Fixture::new(), Service::new());
        let shop = Shop::open(service.payments, layer(set(fixture.layer()))).await;
        let client = shop.client().await;
        let first = tokio::spawn(async move { client.charge(keyed(KEY, "waits")).await });
        fixture.saw("claimed", 1).await;
        let refused = shop.client().await.charge(keyed(key, "waits")).await;
        assert_refused(&refused.unwrap_err(), expected, row);
        service.go_on.send_replace(true);
        assert_eq!(first.await.unwrap().unwrap().get_ref().number, 1, "{row}");
        assert_eq!(shop.payments.runs(), 1, "{row}");
    }
}

#[tokio::test]
async fn a_call_is_refused_while_the_store_is_down() {
    let store = Faulty::new(MemoryStore::new());
    let engine = Engine::builder(store.clone()).build().unwrap();
    let http = IdempotencyLayer::public(&engine, "shop.grpc");
    let shop = Shop::open(Service::new().payments, layer(http)).await;
    let client = shop.client().await;
    store.fail(StoreOperation::Claim, [Fault::Refused]);
    let refused = client.charge(order()).await.unwrap_err();
    assert_refused(&refused, UNAVAILABLE, "the store refuses");
    let instance = &refused.get_details_error_info().unwrap().metadata["instance"];
    assert!(instance.starts_with("urn:uuid:"), "{instance}");
    assert_eq!(shop.payments.runs(), 0);
    store.heal();
    assert_eq!(client.charge(order()).await.unwrap().get_ref().number, 1);
    engine.shutdown(Duration::from_secs(1)).await.unwrap();
    let refused = client.charge(keyed("other", ITEM)).await.unwrap_err();
    assert_refused(&refused, UNAVAILABLE, "the engine is shut down");
}

#[tokio::test]
async fn a_setting_that_is_not_valid_is_an_error_of_the_server() {
    let fixture = Fixture::new();
    let http = fixture.layer().ttl(Duration::ZERO);
    let shop = Shop::open(Service::new().payments, layer(http)).await;
    let refused = shop.client().await.charge(order()).await.unwrap_err();
    let misconfigured: Expected = (Code::Internal, "MISCONFIGURED", false, None);
    assert_refused(&refused, misconfigured, "no `ttl`");
}

/// Refused calls of clients that send everything, or stop half-way.
#[tokio::test]
async fn a_body_that_does_not_arrive_is_refused_before_anything_is_claimed() {
    let fixture = Fixture::new();
    let shop = Shop::open(Service::new().payments, layer(fixture.layer())).await;
    let client = shop.client().await;
    let (_source, body) = frames();
    let call = raw(KEY, Vec::new()).map(|_| tonic::body::Body::new(body));
    let refused = tokio::spawn(async move { client.raw(call).await });
    fixture.clock.sleeper_within(Duration::from_secs(30)).await;
    fixture.clock.advance(Duration::from_secs(30));
    let status = refused.await.unwrap().status();
    let late: Expected = (Code::Unavailable, "BODY_TIMEOUT", true, None);
    assert_refused(&status, late, "no body");
    assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
}

/// For clients in other languages: such as gRPC-Web, which a layer inside translates.
#[tokio::test]
async fn a_call_that_is_no_grpc_is_refused() {
    let fixture = Fixture::new();
    let shop = Shop::open(Payments::numbered(), layer(fixture.layer())).await;
    let client = shop.client().await;
    let body = frame(order().get_ref());
    for (of_type, is_grpc) in [
        ("application/grpc", true),
        ("application/grpc+proto", true),
        ("application/grpc-web+proto", false),
        ("application/grpc-web", false),
        ("application/json", false),
    ] {
        let mut call = raw(of_type, body.clone());
        call.headers_mut()
            .insert("content-type", of_type.parse().unwrap());
        let runs = shop.payments.runs();
        let response = client.raw(call).await;
        // The client of another protocol does not read the status of gRPC.
        assert_eq!(response.http, if is_grpc { 200 } else { 415 }, "{of_type}");
        let status = response.status();
        if is_grpc {
            assert_eq!(status.code(), Code::Ok, "{of_type}");
        } else {
            let no_grpc: Expected = (Code::Unimplemented, "NOT_GRPC", false, None);
            assert_refused(&status, no_grpc, of_type);
        }
        assert_eq!(
            shop.payments.runs() - runs,
            usize::from(is_grpc),
            "{of_type}"
        );
    }
}

#[tokio::test]
async fn a_method_that_is_not_listed_takes_no_key_unless_it_passes() {
    type SetGrpc = fn(GrpcLayer) -> GrpcLayer;
    let unlisted: Expected = (Code::InvalidArgument, "METHOD_NOT_LISTED", false, None);
    let another_service: SetGrpc = |it| it.unary(["shop.v1.Orders"]);
    let exempt: SetGrpc = |it| it.unary(["shop.v1.Payments"]).pass([CHARGE]);
    let cases: [(&str, SetGrpc, Option<Expected>); 6] = [
        ("not listed", |it| it, Some(unlisted)),
        ("another one is", |it| it.unary([WATCH]), Some(unlisted)),
        ("another service is", another_service, Some(unlisted)),
        ("passes", |it| it.pass([CHARGE]), None),
        ("passes, its service does not", exempt, None),
        ("all others pass", GrpcLayer::pass_unlisted, None),
    ];
    for (row, set, refused) in cases {
        let fixture = Fixture::new();
        let grpc = set(GrpcLayer::new(fixture.layer()));
        let shop = Shop::open(Payments::numbered(), grpc).await;
        let client = shop.client().await;
        // Without a key it passes in any case.
        assert_eq!(
            client.charge(bare(ITEM)).await.unwrap().get_ref().number,
            1,
            "{row}"
        );
        for run in 2..4 {
            match (client.charge(order()).await, refused) {
                (Ok(charged), None) => assert_eq!(charged.get_ref().number, run, "{row}"),
                (Err(status), Some(refused)) => assert_refused(&status, refused, row),
                (charged, _) => panic!("{row}: {charged:?}"),
            }
        }
        assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
    }
}

#[tokio::test]
async fn a_call_without_a_key_passes_where_keys_are_optional() {
    let fixture = Fixture::new();
    let http = fixture.layer().optional();
    let shop = Shop::open(Payments::numbered(), layer(http)).await;
    let client = shop.client().await;
    for run in 1..3 {
        assert_eq!(
            client.charge(bare(ITEM)).await.unwrap().get_ref().number,
            run
        );
    }
    let refused = client.charge(keyed("a, b", ITEM)).await.unwrap_err();
    assert_refused(&refused, KEY_INVALID, "a key that is none");
}

/// Refusals with a service's documentation, and from an `#[idempotent]` function.
#[tokio::test]
async fn an_error_of_a_call_is_a_status() {
    let engine = Engine::new(MemoryStore::new());
    let pay = async |amount: u64| {
        let call = engine.operation("pay").key(KEY).fingerprint(&amount);
        let paid: Result<u64, Error> = call.run(|_| async { Ok(7) }).await;
        paid.map_err(Status::from)
    };
    assert_eq!(pay(1).await.unwrap(), 7);
    let refused = pay(2).await.unwrap_err();
    assert_refused(&refused, KEY_REUSED, "another amount");

    let fixture = Fixture::new();
    let http = fixture.layer().documented_at("https://shop.test/keys");
    let shop = Shop::open(
        Payments::new(|run, _| async move { Ok(receipt(run)) }),
        layer(http),
    )
    .await;
    let refused = shop.client().await.charge(bare(ITEM)).await.unwrap_err();
    let help = refused.get_details_help().unwrap();
    assert_eq!(help.links[0].url, "https://shop.test/keys#key-missing");
}
