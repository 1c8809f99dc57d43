//! The same request from 500 clients at once, on two servers over one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use idem_harness::HANG_LIMIT;
use idem_runtime::http::IdempotencyLayer;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, OnRunning};
use idem_tests::fixture;
use tokio::sync::{Barrier, watch};
use tokio::task::JoinSet;

use crate::client::{Answer, KEY, patiently};
use crate::server::{Server, with_key};

const CLIENTS: usize = 500;
const LEASE: Duration = Duration::from_mins(1);

/// Two servers, whose handlers wait until they may go on.
struct Shops {
    servers: [Server; 2],
    /// Requests that have come as far as the layer.
    arrived: watch::Receiver<usize>,
    runs: Arc<AtomicUsize>,
    go_on: watch::Sender<bool>,
}

impl Shops {
    /// Each has a handle of its own on the store.
    async fn open(stores: [RedisStore; 2], on_running: OnRunning, prefix: &str) -> Self {
        let (arrivals, arrived) = watch::channel(0);
        let (runs, go_on) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(false));
        let arrivals = Arc::new(arrivals);
        let open = async |store: RedisStore| {
            let engine = Engine::builder(store).prefix(prefix).lease(LEASE);
            let engine = engine.claim_deadline(HANG_LIMIT).build().unwrap();
            let arrivals = Arc::clone(&arrivals);
            let layer = IdempotencyLayer::scoped(engine, "shop.api", move |_| {
                arrivals.send_modify(|arrived| *arrived += 1);
                Some("acme".to_owned())
            });
            let (runs, go_on) = (Arc::clone(&runs), go_on.clone());
            let handler = post(move |order: String| async move {
                let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                let mut go_on = go_on.subscribe();
                go_on.wait_for(|go_on| *go_on).await.unwrap();
                let headers = [("location", format!("/orders/{run}"))];
                (StatusCode::CREATED, headers, format!("{order}: {run}"))
            });
            let service = Router::new().route("/orders", handler);
            Server::start(service.layer(layer.on_running(on_running))).await
        };
        let [one, other] = stores;
        Self {
            servers: [open(one).await, open(other).await],
            arrived,
            runs,
            go_on,
        }
    }

    /// All clients are connected before the first one writes.
    async fn ask_all(&self) -> JoinSet<(usize, Answer)> {
        let barrier = Arc::new(Barrier::new(CLIENTS));
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let mut client = self.servers[number % 2].connect().await;
            let barrier = Arc::clone(&barrier);
            clients.spawn(async move {
                barrier.wait().await;
                client.write(&with_key(KEY, "tea")).await;
                (number, client.answer().await)
            });
        }
        clients
    }

    async fn have_arrived(&self) {
        let mut arrived = self.arrived.clone();
        let all = arrived.wait_for(|arrived| *arrived == CLIENTS);
        patiently("all requests reach the layer", all)
            .await
            .unwrap();
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

/// What every client must get alike.
fn same(answer: &Answer) -> (StatusCode, HeaderMap, Vec<u8>) {
    let mut headers = answer.headers.clone();
    // Of the server, and the layer's mark.
    for name in ["date", "connection", "idempotent-replayed"] {
        headers.remove(name);
    }
    (answer.status, headers, answer.body.to_vec())
}

fn is_the_one(answer: &Answer) -> bool {
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    assert_eq!(answer.headers["location"], "/orders/1");
    assert_eq!(answer.headers["content-length"], "6");
    assert_eq!(answer.body, "tea: 1");
    !answer.is_replayed()
}

/// They wait, and all of them get the answer of the one that ran.
async fn waits(stores: [RedisStore; 2], prefix: &str) {
    let shops = Shops::open(stores, OnRunning::Wait(HANG_LIMIT), prefix).await;
    let clients = shops.ask_all().await;
    // No client can have an answer before all have sent their request.
    shops.have_arrived().await;
    assert!(shops.runs() <= 1);
    shops.go_on.send_replace(true);
    let answers = patiently("all answers", clients.join_all()).await;
    assert_eq!(answers.len(), CLIENTS);
    let first: Vec<_> = answers.iter().filter(|(_, it)| is_the_one(it)).collect();
    assert_eq!(first.len(), 1, "one of them was the first");
    let expected = same(&first[0].1);
    assert!(answers.iter().all(|(_, answer)| same(answer) == expected));
    assert_eq!(shops.runs(), 1);
}

/// All but one are refused with a `Retry-After`, and when they come back they get its answer.
async fn come_back(stores: [RedisStore; 2], prefix: &str) {
    let shops = Shops::open(stores, OnRunning::Reject, prefix).await;
    let mut clients = shops.ask_all().await;
    let told = async |clients: &mut JoinSet<_>| {
        let next = patiently("an answer", clients.join_next()).await;
        next.expect("not all have answers").unwrap()
    };
    let mut asked = vec![false; CLIENTS];
    for _ in 1..CLIENTS {
        let (number, answer) = told(&mut clients).await;
        assert_eq!(answer.problem(), (409, "request-running"));
        let seconds = answer.headers["retry-after"].to_str().unwrap();
        let seconds: u64 = seconds.parse().unwrap();
        assert!((1..=2).contains(&seconds), "{seconds}");
        asked[number] = true;
    }
    shops.go_on.send_replace(true);
    let (number, first) = told(&mut clients).await;
    assert!(is_the_one(&first));
    assert!(!asked[number]);
    let again = patiently("all answers", shops.ask_all().await.join_all()).await;
    assert_eq!(again.len(), CLIENTS);
    for (_, answer) in again {
        assert!(answer.is_replayed());
        assert_eq!(same(&answer), same(&first));
    }
    assert_eq!(shops.runs(), 1);
}

#[tokio::test]
async fn redis_500_clients_get_one_answer() {
    let connect = async || {
        let store = RedisStore::builder(fixture::redis().url());
        store.response_timeout(HANG_LIMIT).connect().await.unwrap()
    };
    let stores = [connect().await, connect().await];
    waits(stores.clone(), "waits").await;
    come_back(stores, "comes").await;
}
