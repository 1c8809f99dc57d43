//! The same request from 500 clients at once, on two servers over one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http::StatusCode;
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
    async fn open() -> Self {
        let (arrivals, arrived) = watch::channel(0);
        let (runs, go_on) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(false));
        let arrivals = Arc::new(arrivals);
        let open = async || {
            let store = RedisStore::builder(fixture::redis().url());
            let store = store.response_timeout(HANG_LIMIT).connect().await;
            let engine = Engine::builder(store.unwrap()).prefix("many").lease(LEASE);
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
            Server::start(service.layer(layer.on_running(OnRunning::Wait(HANG_LIMIT)))).await
        };
        Self {
            servers: [open().await, open().await],
            arrived,
            runs,
            go_on,
        }
    }

    /// All clients are connected before the first one writes.
    async fn ask_all(&self) -> JoinSet<Answer> {
        let barrier = Arc::new(Barrier::new(CLIENTS));
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let mut client = self.servers[number % 2].connect().await;
            let barrier = Arc::clone(&barrier);
            clients.spawn(async move {
                barrier.wait().await;
                client.write(&with_key(KEY, "tea")).await;
                client.answer().await
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

/// Whether an answer, which must be that of the one run, was no replay.
fn is_the_first(answer: &Answer) -> bool {
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    assert_eq!(answer.headers["location"], "/orders/1");
    assert_eq!(answer.headers["content-length"], "6");
    assert_eq!(answer.body, "tea: 1");
    !answer.is_replayed()
}

/// They wait, and all of them get the answer of the one that ran.
#[tokio::test]
async fn redis_500_clients_get_one_answer() {
    let shops = Shops::open().await;
    let clients = shops.ask_all().await;
    // No client can have an answer before all have sent their request.
    shops.have_arrived().await;
    assert!(shops.runs() <= 1);
    shops.go_on.send_replace(true);
    let answers = patiently("all answers", clients.join_all()).await;
    let first = answers.iter().filter(|answer| is_the_first(answer));
    assert_eq!(first.count(), 1, "one of them was the first");
    assert_eq!(shops.runs(), 1);
}
