//! One request of 500 concurrent clients on two services over one store.

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use http::StatusCode;
use idem_harness::HANG_LIMIT;
use idem_runtime::http::IdempotencyLayer;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, OnRunning};
use idem_tests::fixture;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::{Answer, Fixture, order, patiently, routed, send};

const CLIENTS: usize = 500;

/// A service with a handle of its own on the store. Its handlers wait until all requests have come to the layers.
async fn shop(arrivals: Arc<watch::Sender<usize>>, counter: Fixture) -> Router {
    let store = RedisStore::builder(fixture::redis().url());
    let store = store.response_timeout(HANG_LIMIT).connect().await.unwrap();
    let engine = Engine::builder(store).prefix("many");
    let engine = engine.claim_deadline(HANG_LIMIT).build().unwrap();
    let arrived = arrivals.subscribe();
    let layer = IdempotencyLayer::scoped(engine, "shop.api", move |_| {
        arrivals.send_modify(|arrived| *arrived += 1);
        Some("acme".to_owned())
    });
    let handler = post(move |order: String| async move {
        let run = counter.run();
        let mut arrived = arrived.clone();
        arrived
            .wait_for(|arrived| *arrived == CLIENTS)
            .await
            .unwrap();
        let headers = [("location", format!("/orders/{run}"))];
        (StatusCode::CREATED, headers, format!("{order}: {run}"))
    });
    routed(handler, layer.on_running(OnRunning::Wait(HANG_LIMIT)))
}

/// Whether an answer was no replay. It must be the one run's.
fn is_the_first(answer: &Answer) -> bool {
    assert_eq!(answer.said(), (201, "tea: 1"), "{answer:?}");
    assert_eq!(answer.headers["location"], "/orders/1");
    !answer.is_replayed()
}

/// All clients wait and get the answer of the one run.
#[tokio::test]
async fn redis_500_clients_get_one_answer() {
    let (arrivals, counter) = (Arc::new(watch::Sender::new(0)), Fixture::new());
    let shops = [
        shop(Arc::clone(&arrivals), counter.clone()).await,
        shop(Arc::clone(&arrivals), counter.clone()).await,
    ];
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let shop = shops[number % 2].clone();
        clients.spawn(async move { send(&shop, order("tea")).await });
    }
    let answers = patiently("all answers", clients.join_all()).await;
    let first = answers.iter().filter(|answer| is_the_first(answer));
    assert_eq!(first.count(), 1, "one of them was the first");
    assert_eq!(counter.runs(), 1);
}
