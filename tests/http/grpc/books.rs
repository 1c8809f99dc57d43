//! Transfers over a network that loses replies and doubles requests: the books balance.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::{BoxFuture, join};
use http::Request as HttpRequest;
use idem_harness::TcpProxy;
use idem_runtime::Engine;
use idem_runtime::grpc::GrpcLayer;
use idem_runtime::http::IdempotencyLayer;
use idem_tests::shop::{persistent, started};
use tonic::body::Body;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;
use tower::{Layer, Service, ServiceExt as _};

use super::layer;
use super::payments::{Client, Order, Payments, Receipt, Shop, with};
use crate::client::tenant;

const CLIENTS: usize = 6;
const TRANSFERS: usize = 20;
/// The initial balance of each client. Each of its transfers has another amount.
const BALANCE: u64 = 1_500;

/// The accounts of the bank: their balances, and the withdrawals with their clients.
#[derive(Default)]
struct Books {
    left: BTreeMap<String, u64>,
    entries: Vec<(String, u64)>,
    tried: BTreeMap<String, usize>,
}

/// An outer layer like a gateway: it sends twice, and answers with the second reply.
#[derive(Clone)]
struct Doubling<L>(L);

#[derive(Clone)]
struct Doubled<S>(S);

impl<L: Layer<S>, S> Layer<S> for Doubling<L> {
    type Service = Doubled<L::Service>;

    fn layer(&self, inner: S) -> Self::Service {
        Doubled(self.0.layer(inner))
    }
}

impl<S> Service<HttpRequest<Body>> for Doubled<S>
where
    S: Service<HttpRequest<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let inner = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            if !parts.headers.contains_key("x-doubled") {
                return inner.oneshot(HttpRequest::from_parts(parts, body)).await;
            }
            let body = axum::body::to_bytes(axum::body::Body::new(body), usize::MAX).await;
            // A request that the network cut off is cut off here too.
            let body = body.unwrap_or_default();
            let copy = |body: Bytes| {
                let body = Body::new(axum::body::Body::from(body));
                HttpRequest::from_parts(parts.clone(), body)
            };
            let one = inner.clone().oneshot(copy(body.clone()));
            let (_, second) = join(one, inner.oneshot(copy(body))).await;
            second
        })
    }
}

/// A bank whose account of each client has the balance; it cuts the network in the midst of some transfers.
fn bank(books: &Arc<Mutex<Books>>, proxy: &Arc<Mutex<Option<TcpProxy>>>) -> Payments {
    let (books, proxy) = (Arc::clone(books), Arc::clone(proxy));
    Payments::new(move |_, transfer: Request<Order>| {
        let (books, proxy) = (Arc::clone(&books), Arc::clone(&proxy));
        async move {
            let account = transfer.metadata().get("x-tenant").unwrap();
            let account = account.to_str().unwrap().to_owned();
            let Order { item, cents, .. } = transfer.into_inner();
            let tries = {
                let mut books = books.lock().unwrap();
                let tries = books.tried.entry(item.clone()).or_default();
                *tries += 1;
                *tries
            };
            if item.ends_with('3') && tries == 1 {
                return Err(Status::unavailable("the bank opens at nine"));
            }
            let charged = {
                let mut books = books.lock().unwrap();
                let left = books.left.entry(account).or_insert(BALANCE);
                match left.checked_sub(cents) {
                    None => Err(Status::failed_precondition(format!("{left} are left"))),
                    Some(rest) => {
                        *left = rest;
                        books.entries.push((item.clone(), cents));
                        Ok(books.entries.len() as u64)
                    }
                }
            };
            if item.ends_with('1') {
                proxy.lock().unwrap().as_ref().unwrap().cut();
            }
            let scan = item.into_bytes();
            charged.map(|number| Response::new(Receipt { number, scan }))
        }
    })
}

/// The final answer to a client: a receipt, or a business error.
type Told = Result<Receipt, (Code, String)>;

/// The transfer of this number, of this client.
fn transfer(client: usize, number: usize) -> Request<Order> {
    let item = format!("transfer-{client}-{number}");
    let order = Order {
        cents: (number as u64 + 1) * 10,
        item: item.clone(),
        scan: Vec::new(),
    };
    let order = with("idempotency-key", &item, Request::new(order));
    with("x-tenant", &format!("account-{client}"), order)
}

/// Repeats it until it has an answer, ignoring the network.
async fn insist(bank: &Client, transfer: impl Fn() -> Request<Order>) -> Told {
    // Each loss of the network costs a few, and only an answer that never comes costs so many.
    for _ in 0..1_000 {
        let status = match bank.charge(transfer()).await {
            Ok(charged) => return Ok(charged.into_inner()),
            Err(status) => status,
        };
        match (status.code(), status.get_details_error_info()) {
            (Code::FailedPrecondition, None) => {
                return Err((status.code(), status.message().to_owned()));
            }
            // The network, or the bank that has not tried; a refusal that is to be repeated.
            (_, None) | (Code::Unavailable, Some(_)) => {}
            (_, Some(_)) => panic!("{status:?}"),
        }
    }
    panic!("no answer to {:?}", transfer());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_books_balance_over_a_network_that_loses_and_doubles() {
    let (_redis, store) = started().await;
    let engine = persistent(Engine::builder(store)).build().unwrap();
    let http = IdempotencyLayer::scoped(&engine, "bank.transfers", tenant);
    let (books, network) = (Arc::default(), Arc::default());
    let grpc: GrpcLayer = layer(http);
    let shop = Shop::serve(bank(&books, &network), Doubling(grpc)).await;
    let proxy = TcpProxy::start(shop.addr);
    let addr = proxy.addr();
    *network.lock().unwrap() = Some(proxy);

    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let network = Arc::clone(&network);
        clients.push(tokio::spawn(async move {
            let bank = Client::lazy(addr);
            let mut told = Vec::new();
            for number in 0..TRANSFERS {
                if number % 4 == 2 {
                    let network = network.lock().unwrap();
                    let transfer = format!("transfer-{client}-{number}");
                    network.as_ref().unwrap().drop_next_reply_to(transfer);
                }
                let order = || {
                    let order = transfer(client, number);
                    if number % 4 == 0 {
                        with("x-doubled", "yes", order)
                    } else {
                        order
                    }
                };
                told.push(insist(&bank, order).await);
            }
            told
        }));
    }
    let mut told = Vec::new();
    for client in clients {
        told.push(client.await.unwrap());
    }
    let stats = network.lock().unwrap().as_ref().unwrap().stats();
    assert!(stats.dropped_replies >= CLIENTS, "{stats:?}");

    // A repeat by another client gets the one answer of each transfer.
    let auditor = shop.client().await;
    for (client, told) in told.iter().enumerate() {
        for (number, told) in told.iter().enumerate() {
            let again = insist(&auditor, || transfer(client, number)).await;
            assert_eq!(&again, told, "transfer {number} of client {client}");
        }
    }
    // Each executed transfer is one entry in the books, and the entries explain the balances.
    let books = books.lock().unwrap();
    let mut done: Vec<_> = told
        .iter()
        .flatten()
        .filter_map(|told| told.as_ref().ok())
        .collect();
    done.sort_unstable_by_key(|receipt| receipt.number);
    let receipts = done
        .iter()
        .map(|receipt| String::from_utf8(receipt.scan.clone()).unwrap());
    let entries = books.entries.iter().map(|(item, _)| item.clone());
    assert_eq!(receipts.collect::<Vec<_>>(), entries.collect::<Vec<_>>());
    let taken: u64 = books.entries.iter().map(|(_, cents)| cents).sum();
    let left: u64 = books.left.values().sum();
    assert_eq!(taken + left, BALANCE * CLIENTS as u64);
    // Of 2,100 that each client wants to transfer there are 1,500.
    assert!(told.iter().flatten().any(Result::is_err));
}
