//! The reference client of x402 for Node.js with its payment identifier.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{StatusCode, Uri};
use idem_harness::Sdk;
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyLayer, Profile};
use idem_tests::shop::{persistent, started};
use serde_json::{Value, json};

use super::{Fault, Network, Scene, is_replayed, name, number};

const NETWORK: &str = "eip155:84532";

/// What happens to a purchase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The network loses the challenge.
    LosesChallenge,
    /// The fault of its first payment; a connection is cut before the settlement.
    OfPayment(Fault),
    /// The facilitator declines the first payment.
    Declines,
}

#[derive(Clone, Copy, Debug)]
struct Purchase {
    number: usize,
    event: Event,
    method: &'static str,
}

fn purchases() -> Vec<Purchase> {
    use Event::{Declines, LosesChallenge, OfPayment};
    use Fault::{Calm, Cuts, Delays, Doubles, LosesReply};
    let mut purchases = Vec::new();
    for event in [
        OfPayment(Calm),
        LosesChallenge,
        OfPayment(LosesReply),
        OfPayment(Cuts),
        OfPayment(Delays),
        OfPayment(Doubles),
        Declines,
    ] {
        for method in ["GET", "POST", "POST"] {
            for _ in 0..2 {
                purchases.push(Purchase {
                    number: purchases.len(),
                    event,
                    method,
                });
            }
        }
    }
    purchases
}

impl Purchase {
    /// The client's task, with the id of this purchase.
    fn request(&self, of: usize) -> Value {
        let body = json!({ "order": name(of) });
        let is_post = self.method == "POST";
        json!({
            "method": self.method,
            "path": if is_post { "/reports".to_owned() } else { format!("/reports/{}", name(of)) },
            "body": if is_post { body } else { Value::Null },
            "id": format!("pay_7d5d747be160e280504c099d984bc{:03}", self.number),
        })
    }
}

/// A payment that was settled.
#[derive(Debug)]
struct Settlement {
    order: usize,
    payer: String,
}

/// Verifies and settles payments, as a facilitator with its chain does. It knows a payer by the address that the payment
/// names, and verifies no signature.
#[derive(Default)]
struct Facilitator {
    settlements: Vec<Settlement>,
    nonces: BTreeSet<String>,
    /// How often a payment for each order was verified.
    verified: BTreeMap<usize, usize>,
}

struct Service {
    purchases: Vec<Purchase>,
    facilitator: Mutex<Facilitator>,
    /// Orders for which there was a challenge.
    challenged: Mutex<BTreeSet<usize>>,
    network: Arc<Network>,
}

/// The service's demand for an order.
fn terms() -> Value {
    json!({
        "scheme": "exact",
        "network": NETWORK,
        "amount": "10000",
        "asset": "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
        "payTo": "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
        "maxTimeoutSeconds": 60,
        "extra": { "name": "USDC", "version": "2" },
    })
}

/// The challenge of a request without an accepted payment.
fn challenge(uri: &Uri, error: &str) -> Response {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "required": { "type": "boolean" },
            "id": { "type": "string", "minLength": 16, "maxLength": 128 },
        },
        "required": ["required"],
    });
    let required = json!({
        "x402Version": 2,
        "error": error,
        "resource": { "url": format!("http://shop.test{uri}"), "description": "a report" },
        "accepts": [terms()],
        "extensions": { "payment-identifier": { "info": { "required": false }, "schema": schema } },
    });
    let response = Response::builder()
        .status(StatusCode::PAYMENT_REQUIRED)
        .header("payment-required", BASE64.encode(required.to_string()));
    response.body(Body::from("{}")).unwrap()
}

impl Service {
    /// The middleware of a paid API, inside of the layer: a challenge without a payment; with one, the handler between
    /// verification and settlement.
    async fn paid(&self, request: Request, next: Next) -> Response {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let uri = parts.uri.clone();
        let order = number(&uri, &body);
        let Some(payment) = parts.headers.get("payment-signature") else {
            // The network waits for the next request, which has the first payment.
            if let Event::OfPayment(fault) = self.purchases[order].event
                && self.challenged.lock().unwrap().insert(order)
            {
                self.network.lay(order, fault);
            }
            return challenge(&uri, "a payment is required");
        };
        let payment = BASE64.decode(payment).unwrap();
        let payment: Value = serde_json::from_slice(&payment).unwrap();
        assert_eq!(payment["accepted"], terms());
        let authorization = &payment["payload"]["authorization"];
        assert_eq!(authorization["to"], terms()["payTo"]);
        assert_eq!(authorization["value"], terms()["amount"]);
        let text = |name| authorization[name].as_str().unwrap().to_owned();
        let (payer, nonce): (String, String) = (text("from"), text("nonce"));

        let is_first = {
            let mut facilitator = self.facilitator.lock().unwrap();
            let verified = facilitator.verified.entry(order).or_default();
            *verified += 1;
            *verified == 1
        };
        match self.purchases[order].event {
            Event::Declines if is_first => return challenge(&uri, "insufficient_funds"),
            Event::OfPayment(Fault::Cuts) if is_first => self.network.cut(order, 1).await,
            _ => {}
        }
        let mut response = next.run(Request::from_parts(parts, Body::from(body))).await;
        let transaction = {
            let mut facilitator = self.facilitator.lock().unwrap();
            // The contract of the asset takes each nonce once.
            if !facilitator.nonces.insert(nonce) {
                return challenge(&uri, "nonce_already_used");
            }
            let settlement = Settlement {
                order,
                payer: payer.clone(),
            };
            facilitator.settlements.push(settlement);
            format!("0x{:064x}", facilitator.settlements.len())
        };
        let receipt = json!({
            "success": true,
            "transaction": transaction,
            "network": NETWORK,
            "payer": payer,
        });
        let receipt = BASE64.encode(receipt.to_string()).parse().unwrap();
        response.headers_mut().insert("payment-response", receipt);
        response
    }
}

/// A paid API behind a network, and its client.
async fn open(engine: &Engine) -> (Arc<Service>, Scene) {
    let network = Arc::new(Network::default());
    let service = Arc::new(Service {
        purchases: purchases(),
        facilitator: Mutex::default(),
        challenged: Mutex::default(),
        network: Arc::clone(&network),
    });
    let layer = IdempotencyLayer::public(engine, "reports.api").profile(Profile::x402());
    let paid = async |State(service): State<Arc<Service>>, request: Request, next: Next| {
        service.paid(request, next).await
    };
    let report = any(async |request: Request| {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        format!("the report of {}", name(number(&parts.uri, &body)))
    });
    let router = Router::new()
        .fallback_service(report)
        .layer(from_fn_with_state(Arc::clone(&service), paid))
        .layer(layer);
    let scene = Scene::open(Sdk::X402ForNode, &network, router).await;
    for purchase in &service.purchases {
        if purchase.event == Event::LosesChallenge {
            network.lay(purchase.number, Fault::LosesReply);
        }
    }
    (service, scene)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(
    clippy::print_stdout,
    reason = "the figures of the network and of the books"
)]
async fn a_paying_client_pays_once() {
    let (_redis, store) = started().await;
    let engine = persistent(Engine::builder(store)).build().unwrap();
    let (service, mut scene) = open(&engine).await;
    let purchases = &service.purchases;
    // With the ids of all, and the orders of these.
    let requests = |of: &dyn Fn(usize) -> usize| {
        let requests = purchases.iter().map(|it| it.request(of(it.number)));
        requests.collect::<Vec<_>>()
    };
    let outcomes = scene.make(requests(&|number| number));

    {
        let facilitator = service.facilitator.lock().unwrap();
        let tries: u64 = outcomes
            .iter()
            .filter_map(|outcome| outcome["tries"].as_u64())
            .sum();
        println!(
            "{} purchases, {tries} tries, {} payments sent, {} verified, {} settled; {:?}",
            purchases.len(),
            scene.network.all_arrivals(),
            facilitator.verified.values().sum::<usize>(),
            facilitator.settlements.len(),
            scene.network.proxy().stats(),
        );
        for (purchase, outcome) in purchases.iter().zip(&outcomes) {
            assert_eq!(outcome["status"], 200, "{purchase:?}: {outcome}");
            let report = format!("the report of {}", name(purchase.number));
            assert_eq!(outcome["body"], report, "{purchase:?}: {outcome}");
            let settled = (1..).zip(&facilitator.settlements);
            let settled: Vec<_> = settled
                .filter(|(_, settled)| settled.order == purchase.number)
                .collect();
            let [(transaction, settlement)] = settled[..] else {
                panic!("{} settlements of {purchase:?}: {settled:?}", settled.len());
            };
            // The receipt is that of the payment, by this client.
            let receipt = &outcome["receipt"];
            assert_eq!(
                receipt["transaction"],
                format!("0x{transaction:064x}"),
                "{outcome}"
            );
            assert_eq!(receipt["payer"], settlement.payer, "{outcome}");
            assert_eq!(outcome["payer"], settlement.payer, "{outcome}");
            let calm = [Fault::Calm, Fault::Doubles].map(Event::OfPayment);
            let has_repeated = !calm.contains(&purchase.event);
            let tries = outcome["tries"].as_u64().unwrap();
            assert!(tries > u64::from(has_repeated), "{purchase:?}: {outcome}");
            let verified = facilitator.verified[&purchase.number];
            let declined = usize::from(purchase.event == Event::Declines);
            assert_eq!(
                verified,
                1 + declined,
                "payments of {purchase:?}: {outcome}"
            );
        }
        assert_eq!(facilitator.settlements.len(), purchases.len());
    }

    // Another account with the same id gets the first one's purchase and receipt.
    for ((purchase, outcome), again) in purchases
        .iter()
        .zip(&outcomes)
        .zip(scene.make(requests(&|number| number)))
    {
        assert_eq!(again["status"], 200, "{purchase:?}: {again}");
        assert_eq!(again["body"], outcome["body"], "{purchase:?}");
        assert_eq!(again["receipt"], outcome["receipt"], "{purchase:?}");
        assert_ne!(again["payer"], outcome["payer"]);
        assert!(is_replayed(&again), "{purchase:?}: {again}");
    }
    // Another request with the same id.
    let others = scene.make(requests(&|number| (number + 1) % purchases.len()));
    for (purchase, other) in purchases.iter().zip(others) {
        assert_eq!(other["status"], 409, "{purchase:?}: {other}");
        let problem: Value = serde_json::from_str(other["body"].as_str().unwrap()).unwrap();
        assert_eq!(problem["code"], "key-reused", "{purchase:?}: {other}");
        assert_eq!(other["receipt"], Value::Null);
    }
    let facilitator = service.facilitator.lock().unwrap();
    assert_eq!(facilitator.settlements.len(), purchases.len());
}
