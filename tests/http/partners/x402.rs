//! The reference client of x402 for Node.js, with its payment identifier, against the profile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{StatusCode, Uri};
use idem_harness::{PaymentSdk, Sdk, TcpProxy};
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyLayer, Profile};
use idem_tests::shop::{persistent, started};
use serde_json::{Value, json};

use super::{Gateway, name, number, pass};
use crate::server::Server;

/// So often the application repeats a purchase.
const REPEATS: u32 = 11;
/// So long the client waits for a purchase, with its challenge and its signature.
const PATIENCE: Duration = Duration::from_secs(5);
/// A reply that comes after it has given up.
const LATE: Duration = Duration::from_secs(6);
const NETWORK: &str = "eip155:84532";

/// Settlement of a payment whose connection is cut: the client repeats its request before that ends.
const WORK: Duration = Duration::from_millis(500);

/// What happens to a purchase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The network loses the challenge.
    LosesChallenge,
    /// The network loses the reply to the first payment.
    LosesReply,
    /// The network cuts the connection while the first payment is settled.
    Cuts,
    /// The reply to the first payment comes when the client has given up.
    Delays,
    /// The network doubles the first payment.
    Doubles,
    /// The facilitator declines the first payment.
    Declines,
}

#[derive(Clone, Copy, Debug)]
struct Purchase {
    number: usize,
    fault: Fault,
    method: &'static str,
}

fn purchases() -> Vec<Purchase> {
    use Fault::{Cuts, Declines, Delays, Doubles, LosesChallenge, LosesReply, None};
    let mut purchases = Vec::new();
    for fault in [
        None,
        LosesChallenge,
        LosesReply,
        Cuts,
        Delays,
        Doubles,
        Declines,
    ] {
        for method in ["GET", "POST", "POST"] {
            for _ in 0..2 {
                purchases.push(Purchase {
                    number: purchases.len(),
                    fault,
                    method,
                });
            }
        }
    }
    purchases
}

impl Purchase {
    /// What the client is to do, with the id of this purchase.
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
    proxy: OnceLock<TcpProxy>,
}

/// What the service demands for an order.
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

/// The challenge of a request without a payment, or with one that was declined.
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
    /// The network waits for the next request of an order, which has its first payment.
    fn lay_trap(&self, order: usize) {
        if !self.challenged.lock().unwrap().insert(order) {
            return;
        }
        let (proxy, name) = (self.proxy.get().unwrap(), name(order));
        match self.purchases[order].fault {
            Fault::LosesReply => proxy.drop_next_reply_to(name),
            Fault::Delays => proxy.delay_next_reply_to(name, LATE),
            _ => {}
        }
    }

    /// The middleware of a paid API, inside of the layer: a challenge without a payment; with one, the handler between
    /// verification and settlement.
    async fn paid(&self, request: Request, next: Next) -> Response {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let uri = parts.uri.clone();
        let order = number(&uri, &body);
        let Some(payment) = parts.headers.get("payment-signature") else {
            self.lay_trap(order);
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
        match self.purchases[order].fault {
            Fault::Declines if is_first => return challenge(&uri, "insufficient_funds"),
            Fault::Cuts if is_first => {
                self.proxy.get().unwrap().cut_those_with(name(order));
                tokio::time::sleep(WORK).await;
            }
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

/// A paid API behind a gateway and a network, and its client.
struct Scene {
    service: Arc<Service>,
    gateway: Arc<Mutex<Gateway>>,
    client: PaymentSdk,
    _server: Server,
}

impl Scene {
    async fn open(engine: &Engine) -> Self {
        let service = Arc::new(Service {
            purchases: purchases(),
            facilitator: Mutex::default(),
            challenged: Mutex::default(),
            proxy: OnceLock::new(),
        });
        let layer = IdempotencyLayer::public(engine, "reports.api").profile(Profile::x402());
        let paid = async |State(service): State<Arc<Service>>, request: Request, next: Next| {
            service.paid(request, next).await
        };
        let gateway = Arc::new(Mutex::new(Gateway::default()));
        let report = any(async |request: Request| {
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            format!("the report of {}", name(number(&parts.uri, &body)))
        });
        let router = Router::new()
            .fallback_service(report)
            .layer(from_fn_with_state(Arc::clone(&service), paid))
            .layer(layer)
            .layer(from_fn_with_state(Arc::clone(&gateway), pass));
        let server = Server::start(router).await;
        let proxy = service.proxy.get_or_init(|| TcpProxy::start(server.addr));
        for purchase in &service.purchases {
            match purchase.fault {
                Fault::LosesChallenge => proxy.drop_next_reply_to(name(purchase.number)),
                Fault::Doubles => drop(gateway.lock().unwrap().doubles.insert(purchase.number)),
                _ => {}
            }
        }
        let base = format!("http://{}", proxy.addr());
        let client = PaymentSdk::start(Sdk::X402ForNode, &base, REPEATS, PATIENCE);
        Self {
            service,
            gateway,
            client,
            _server: server,
        }
    }

    /// Makes purchases at the same time, with the ids of all and the orders of these, and returns their outcomes.
    fn make(&mut self, of: impl Fn(usize) -> usize) -> Vec<Value> {
        let purchases = self.service.purchases.clone();
        let requests = purchases
            .iter()
            .map(|purchase| purchase.request(of(purchase.number)));
        // It waits for a process, and the server needs this thread.
        tokio::task::block_in_place(|| self.client.make(requests))
    }

    fn settlements(&self) -> usize {
        self.service.facilitator.lock().unwrap().settlements.len()
    }
}

fn is_replayed(outcome: &Value) -> bool {
    outcome["headers"]["idempotent-replayed"] == "true"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(
    clippy::print_stdout,
    reason = "the figures of the network and of the books"
)]
async fn a_paying_client_pays_once() {
    let (_redis, store) = started().await;
    let engine = persistent(Engine::builder(store)).build().unwrap();
    let mut scene = Scene::open(&engine).await;
    let purchases = scene.service.purchases.clone();
    let outcomes = scene.make(|number| number);

    let proxy = scene.service.proxy.get().unwrap();
    {
        let facilitator = scene.service.facilitator.lock().unwrap();
        let gateway = scene.gateway.lock().unwrap();
        let tries: u64 = outcomes
            .iter()
            .filter_map(|outcome| outcome["tries"].as_u64())
            .sum();
        println!(
            "{} purchases, {tries} tries, {} requests, {} payments verified, {} settled; {:?}",
            purchases.len(),
            gateway.arrivals.values().sum::<usize>(),
            facilitator.verified.values().sum::<usize>(),
            facilitator.settlements.len(),
            proxy.stats(),
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
            let has_repeated = !matches!(purchase.fault, Fault::None | Fault::Doubles);
            let tries = outcome["tries"].as_u64().unwrap();
            assert!(tries > u64::from(has_repeated), "{purchase:?}: {outcome}");
            let verified = facilitator.verified[&purchase.number];
            let declined = usize::from(purchase.fault == Fault::Declines);
            assert_eq!(
                verified,
                1 + declined,
                "payments of {purchase:?}: {outcome}"
            );
        }
        assert_eq!(facilitator.settlements.len(), purchases.len());
    }

    // Another account with the same id gets what the first has paid for, and its receipt.
    for ((purchase, outcome), again) in purchases
        .iter()
        .zip(&outcomes)
        .zip(scene.make(|number| number))
    {
        assert_eq!(again["status"], 200, "{purchase:?}: {again}");
        assert_eq!(again["body"], outcome["body"], "{purchase:?}");
        assert_eq!(again["receipt"], outcome["receipt"], "{purchase:?}");
        assert_ne!(again["payer"], outcome["payer"]);
        assert!(is_replayed(&again), "{purchase:?}: {again}");
    }
    // Another request with the same id.
    let others = scene.make(|number| (number + 1) % purchases.len());
    for (purchase, other) in purchases.iter().zip(others) {
        assert_eq!(other["status"], 409, "{purchase:?}: {other}");
        let problem: Value = serde_json::from_str(other["body"].as_str().unwrap()).unwrap();
        assert_eq!(problem["code"], "key-reused", "{purchase:?}: {other}");
        assert_eq!(other["receipt"], Value::Null);
    }
    assert_eq!(scene.settlements(), purchases.len());
}
