//! Stripe's SDKs for Python and Node.js, against both profiles.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Json, Response};
use axum::routing::any;
use bytes::Bytes;
use http::{StatusCode, Uri};
use idem_harness::{HANG_LIMIT, PaymentSdk, Sdk};
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyLayer, Profile};
use idem_tests::payment::PayError;
use idem_tests::shop::{persistent, started};
use serde_json::{Value, json};

use super::{Fault, Network, REPEATS, Scene, is_replayed, name, number};

/// Every reply takes so long on its way.
const DISTANCE: Duration = Duration::from_millis(20);
/// The version of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Api {
    V1,
    V2,
}

/// The provider's treatment of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    Pays,
    Declines,
    /// With 500; in version 2 a repeat finishes the work.
    FailsBefore,
    /// The same, when the payment is done.
    FailsAfter,
    /// In version 2: the request is a DELETE.
    Deletes,
}

/// A logical request of the customer.
#[derive(Clone, Copy, Debug)]
struct Order {
    number: usize,
    fault: Fault,
    provider: Provider,
    /// Whether the key is the customer's, or one of the SDK's own.
    has_key: bool,
}

/// Every fault of the network with every result, under both key kinds.
fn orders(api: Api) -> Vec<Order> {
    use Fault::{Calm, Cuts, Delays, Doubles, LosesReply, LosesTwo};
    use Provider::{Declines, Deletes, FailsAfter, FailsBefore, Pays};
    let mut orders = Vec::new();
    for fault in [Calm, LosesReply, LosesTwo, Delays, Cuts, Doubles] {
        for provider in [Pays, Declines, FailsBefore, FailsAfter, Deletes] {
            if provider == Deletes && api == Api::V1 {
                continue;
            }
            for has_key in [true, false] {
                orders.push(Order {
                    number: orders.len(),
                    fault,
                    provider,
                    has_key,
                });
            }
        }
    }
    orders
}

impl Order {
    fn amount(&self) -> u64 {
        1_000 + self.number as u64
    }

    /// The call of the SDK.
    fn call(&self, api: Api, amount: u64) -> Value {
        let metadata = json!({ "order": name(self.number) });
        let mut call = match (api, self.provider) {
            (Api::V1, _) => json!({
                "call": "pay",
                "params": { "amount": amount, "currency": "eur", "metadata": metadata },
            }),
            (Api::V2, Provider::Deletes) => json!({
                "call": "delete",
                "id": format!("ed_{amount}_{}", name(self.number)),
            }),
            (Api::V2, _) => json!({
                "call": "send",
                "params": {
                    "amount": { "value": amount, "currency": "eur" },
                    "from": { "financial_account": "fa_1", "currency": "eur" },
                    "to": { "recipient": "acct_2" },
                    "metadata": metadata,
                },
            }),
        };
        if self.has_key {
            // Without the name, which the network looks for.
            let key = format!("the customer's key {}", self.number);
            call["idempotency_key"] = key.into();
        }
        call
    }

    /// The SDK's expected result and the number of effects. The result is the status, and the SDK's name of an error.
    fn end(&self, api: Api) -> (u64, Option<&'static str>, usize) {
        match (api, self.provider) {
            (Api::V1, Provider::Declines) => (402, Some("CardError"), 0),
            (Api::V2, Provider::Declines) => (400, Some("InsufficientFundsError"), 0),
            (Api::V1, Provider::FailsBefore) => (500, Some("APIError"), 0),
            (Api::V1, Provider::FailsAfter) => (500, Some("APIError"), 1),
            _ => (200, None, 1),
        }
    }

    /// Requests for it that get no answer in time.
    fn losses(&self) -> usize {
        match self.fault {
            Fault::Calm | Fault::Doubles => 0,
            Fault::LosesReply | Fault::Delays | Fault::Cuts => 1,
            Fault::LosesTwo => 2,
        }
    }
}

/// The provider's side.
struct Service {
    api: Api,
    orders: Vec<Order>,
    engine: Engine,
    /// The order of each effect, in their order.
    entries: Mutex<Vec<usize>>,
    /// How often the handler ran for each order.
    runs: Mutex<BTreeMap<usize, usize>>,
    network: Arc<Network>,
}

impl Service {
    /// An effect; returns the number of its entry.
    fn enter(&self, order: usize) -> usize {
        let mut entries = self.entries.lock().unwrap();
        entries.push(order);
        entries.len()
    }

    /// A transfer that is idempotent itself. A handler of version 2 needs it where it may fail later.
    async fn transfer(&self, order: usize) -> usize {
        let call = self.engine.operation("provider.transfers").key(&order);
        let transfer = call.run(|_| async { Ok::<_, PayError>(self.enter(order)) });
        transfer.await.unwrap()
    }

    async fn process(&self, order: Order) -> Response {
        let run = {
            let mut runs = self.runs.lock().unwrap();
            let run = runs.entry(order.number).or_default();
            *run += 1;
            *run
        };
        if order.fault == Fault::Cuts && run == 1 {
            // The first repeat is refused, because the call runs.
            self.network.cut(order.number, 2).await;
        }
        let entry = match (self.api, order.provider) {
            (Api::V1, Provider::Declines) => return error(402, "card_error", "card_declined"),
            (Api::V2, Provider::Declines) => {
                return error(400, "insufficient_funds", "insufficient_funds");
            }
            (Api::V1, Provider::FailsBefore) => return error(500, "api_error", "failed"),
            (Api::V1, Provider::FailsAfter) => {
                self.enter(order.number);
                return error(500, "api_error", "failed");
            }
            (Api::V2, Provider::FailsBefore) if run == 1 => {
                return error(500, "api_error", "failed");
            }
            (Api::V2, Provider::FailsAfter) => {
                let entry = self.transfer(order.number).await;
                if run == 1 {
                    return error(500, "api_error", "failed");
                }
                entry
            }
            _ => self.enter(order.number),
        };
        let object = match (self.api, order.provider) {
            (Api::V1, _) => "payment_intent",
            (Api::V2, Provider::Deletes) => "v2.core.event_destination",
            (Api::V2, _) => "v2.money_management.outbound_payment",
        };
        Json(json!({ "id": format!("entry_{entry}"), "object": object })).into_response()
    }
}

fn error(status: u16, kind: &str, code: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    let error = json!({ "error": { "type": kind, "code": code, "message": "it was not done" } });
    (status, Json(error)).into_response()
}

/// The provider behind a network, and its customer.
async fn open(engine: &Engine, sdk: Sdk, api: Api) -> (Arc<Service>, Scene) {
    let network = Arc::new(Network::default());
    let service = Arc::new(Service {
        api,
        orders: orders(api),
        engine: engine.clone(),
        entries: Mutex::default(),
        runs: Mutex::default(),
        network: Arc::clone(&network),
    });
    let layer = IdempotencyLayer::scoped(engine, "provider.api", |request| {
        let credential = request.headers.get("authorization")?;
        Some(credential.to_str().ok()?.to_owned())
    });
    let layer = layer.profile(match api {
        Api::V1 => Profile::stripe_v1(),
        Api::V2 => Profile::stripe_v2(),
    });
    let handler = any(
        async |State(service): State<Arc<Service>>, uri: Uri, body: Bytes| {
            let order = service.orders[number(&uri, &body)];
            service.process(order).await
        },
    );
    let handler = handler.with_state(Arc::clone(&service));
    let router = Router::new().fallback_service(handler).layer(layer);
    (service, Scene::open(sdk, &network, router).await)
}

/// The status of an outcome, and the SDK's name of its error.
fn seen(outcome: &Value) -> (u64, Option<&str>) {
    let status = outcome["http_status"].as_u64();
    (status.unwrap_or_default(), outcome["error"].as_str())
}

/// The customer's orders through the bad network: the outcome of each agrees with the books.
#[allow(
    clippy::print_stdout,
    reason = "the figures of the network and of the books"
)]
async fn orders_balance(sdk: Sdk, api: Api) {
    let (_redis, store) = started().await;
    let engine = persistent(Engine::builder(store)).build().unwrap();
    let (service, mut scene) = open(&engine, sdk, api).await;
    let (network, orders) = (Arc::clone(&scene.network), &service.orders);
    network.proxy().delay(DISTANCE);
    for order in orders {
        network.lay(order.number, order.fault);
    }
    let calls = orders.iter().map(|order| order.call(api, order.amount()));
    let outcomes = scene.make(calls);

    let entries = service.entries.lock().unwrap().clone();
    let runs = service.runs.lock().unwrap().clone();
    let arrivals = network.all_arrivals();
    println!(
        "{sdk:?}, {api:?}: {} orders, {arrivals} requests, {} runs, {} effects; {:?}",
        orders.len(),
        runs.values().sum::<usize>(),
        entries.len(),
        network.proxy().stats(),
    );
    let mut explained = 0;
    for (order, outcome) in orders.iter().zip(&outcomes) {
        let row = format!("{order:?}: {outcome}");
        let (status, error, effects) = order.end(api);
        assert_eq!(seen(outcome), (status, error), "{row}");
        let of_order = (1..).zip(&entries).filter(|(_, of)| **of == order.number);
        let of_order: Vec<_> = of_order
            .map(|(entry, _)| format!("entry_{entry}"))
            .collect();
        assert_eq!(of_order.len(), effects, "effects of {row}");
        if status == 200 {
            assert_eq!(outcome["body"]["id"], *of_order[0], "{row}");
        }
        explained += effects;
        let arrivals = network.arrivals(order.number);
        assert!(arrivals > order.losses(), "{arrivals} requests of {row}");
        let runs = runs[&order.number];
        match (api, order.provider) {
            // A failure of version 2 is executed again: here, by each repeat.
            (Api::V2, Provider::Declines) => {}
            (Api::V2, Provider::FailsBefore | Provider::FailsAfter) => {
                assert_eq!(runs, 2, "runs of {row}");
            }
            _ => assert_eq!(runs, 1, "runs of {row}"),
        }
    }
    assert_eq!(entries.len(), explained, "{entries:?}");

    // A repeat by the customer has the same outcome, and is one request: an SDK repeats nothing that is final.
    let keyed = orders.iter().zip(&outcomes);
    let keyed: Vec<_> = keyed.filter(|(order, _)| order.has_key).collect();
    // From now on, the customer waits for a reply for as long as it takes.
    let base = format!("http://{}", network.proxy().addr());
    scene.client = PaymentSdk::start(sdk, &base, REPEATS, HANG_LIMIT);
    let calls = keyed
        .iter()
        .map(|(order, _)| order.call(api, order.amount()));
    let repeats = scene.make(calls);
    for ((order, outcome), repeat) in keyed.iter().zip(repeats) {
        assert_eq!(seen(&repeat), seen(outcome), "{order:?}: {repeat}");
        assert_eq!(repeat["body"], outcome["body"], "{order:?}");
        let is_final = api == Api::V1 || seen(outcome).0 == 200;
        assert_eq!(is_replayed(&repeat), is_final, "{order:?}: {repeat}");
    }
    assert_eq!(network.all_arrivals(), arrivals + keyed.len());

    // Another request with a key of an earlier one.
    let calls = keyed
        .iter()
        .map(|(order, _)| order.call(api, order.amount() + 1));
    let others = scene.make(calls);
    for ((order, _), other) in keyed.iter().zip(others) {
        let refused = (400, Some("IdempotencyError"));
        assert_eq!(seen(&other), refused, "{order:?}: {other}");
    }
    assert_eq!(*service.entries.lock().unwrap(), entries);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_the_python_sdk_balance_under_version_1() {
    orders_balance(Sdk::StripeForPython, Api::V1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_the_python_sdk_balance_under_version_2() {
    orders_balance(Sdk::StripeForPython, Api::V2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_the_node_sdk_balance_under_version_1() {
    orders_balance(Sdk::StripeForNode, Api::V1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_the_node_sdk_balance_under_version_2() {
    orders_balance(Sdk::StripeForNode, Api::V2).await;
}
