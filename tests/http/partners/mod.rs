//! Official clients of partners, unchanged, against the profiles. The network loses, delays, doubles and cuts.
//!
//! `stripe` finds an outcome at an SDK that contradicts the provider's books: repeats after each end of a handler, its own
//! and the customer's keys, both versions. `x402` finds a second payment: the key is in the signed payment, which differs in
//! each repeat, and the settlement comes after the handler.

mod stripe;
mod x402;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use futures_util::future::join;
use http::{StatusCode, Uri};
use idem_harness::{PaymentSdk, Sdk, TcpProxy};
use serde_json::Value;
use tokio::sync::watch;

use crate::server::Server;

/// So often a client repeats a request.
const REPEATS: u32 = 11;
/// So long it waits for a reply.
const PATIENCE: Duration = Duration::from_secs(5);
/// A reply that comes after it has given up.
const LATE: Duration = Duration::from_secs(6);

/// The text that names an order in its requests. A number has three digits, so that no name contains another.
fn name(number: usize) -> String {
    format!("order-{number:03}")
}

/// The number of a request's order, by name in path or body.
fn number(uri: &Uri, body: &[u8]) -> usize {
    let text = format!("{uri} {}", String::from_utf8_lossy(body));
    let name = text.split("order-").nth(1);
    let name = name.unwrap_or_else(|| panic!("no order: {text}"));
    name[..3].parse().unwrap()
}

/// What happens to the requests of an order that have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Calm,
    LosesReply,
    LosesTwo,
    /// The reply comes when the client has given up.
    Delays,
    /// The connection is cut, while the first request is executed: until it was repeated.
    Cuts,
    Doubles,
}

/// The way to a server: a proxy, and a gateway outside of the layer.
#[derive(Default)]
struct Network {
    proxy: OnceLock<TcpProxy>,
    /// The orders whose next request is to be doubled by the gateway.
    doubles: Mutex<BTreeSet<usize>>,
    /// Requests with a key for each order that came through.
    arrivals: watch::Sender<BTreeMap<usize, usize>>,
}

impl Network {
    fn proxy(&self) -> &TcpProxy {
        self.proxy.get().unwrap()
    }

    /// Prepares the fault of the next request for an order.
    fn lay(&self, order: usize, fault: Fault) {
        let (proxy, name) = (self.proxy(), name(order));
        match fault {
            // A handler cuts its connection.
            Fault::Calm | Fault::Cuts => {}
            Fault::LosesReply => proxy.drop_next_reply_to(name),
            Fault::LosesTwo => {
                proxy.drop_next_reply_to(&name);
                proxy.drop_next_reply_to(&name);
            }
            Fault::Delays => proxy.delay_next_reply_to(name, LATE),
            Fault::Doubles => drop(self.doubles.lock().unwrap().insert(order)),
        }
    }

    /// Cuts an order's first request, and waits for this many repeats.
    async fn cut(&self, order: usize, repeats: usize) {
        let mut arrivals = self.arrivals.subscribe();
        self.proxy().cut_those_with(name(order));
        let repeated = arrivals.wait_for(|arrivals| arrivals[&order] > repeats);
        repeated.await.unwrap();
    }

    fn arrivals(&self, order: usize) -> usize {
        self.arrivals.borrow()[&order]
    }

    fn all_arrivals(&self) -> usize {
        self.arrivals.borrow().values().sum()
    }
}

/// The gateway: passes a request on, or does so twice and answers with the second reply.
async fn pass(State(network): State<Arc<Network>>, request: Request, next: Next) -> Response {
    let keys = ["idempotency-key", "payment-signature"];
    if !keys.iter().any(|key| request.headers().contains_key(*key)) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    // A request that the network cut off is cut off here too.
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let number = number(&parts.uri, &body);
    let arrived = |arrivals: &mut BTreeMap<_, _>| *arrivals.entry(number).or_default() += 1;
    network.arrivals.send_modify(arrived);
    let is_doubled = network.doubles.lock().unwrap().remove(&number);
    let copy = Request::from_parts(parts.clone(), Body::from(body.clone()));
    let request = Request::from_parts(parts, Body::from(body));
    if is_doubled {
        let (_, second) = join(next.clone().run(request), next.run(copy)).await;
        return second;
    }
    next.run(request).await
}

/// A server behind a network, and its client.
struct Scene {
    network: Arc<Network>,
    client: PaymentSdk,
    _server: Server,
}

impl Scene {
    async fn open(sdk: Sdk, network: &Arc<Network>, service: Router) -> Self {
        let network = Arc::clone(network);
        let service = service.layer(from_fn_with_state(Arc::clone(&network), pass));
        let server = Server::start(service).await;
        let proxy = network.proxy.get_or_init(|| TcpProxy::start(server.addr));
        let base = format!("http://{}", proxy.addr());
        let client = PaymentSdk::start(sdk, &base, REPEATS, PATIENCE);
        Self {
            network,
            client,
            _server: server,
        }
    }

    /// Makes calls at the same time, and returns their outcomes.
    fn make(&mut self, calls: impl IntoIterator<Item = Value>) -> Vec<Value> {
        // It waits for a process, and the server needs this thread.
        tokio::task::block_in_place(|| self.client.make(calls))
    }
}

fn is_replayed(outcome: &Value) -> bool {
    outcome["headers"]["idempotent-replayed"] == "true"
}
