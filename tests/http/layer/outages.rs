//! A store that goes away and comes back, behind a service on a socket.

use std::sync::Arc;
use std::time::Instant;

use axum::routing::post;
use idem_harness::RedisServer;
use idem_runtime::http::IdempotencyLayer;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, OnRunning};
use idem_tests::events::Events;
use idem_tests::shop::{HASTE, SLACK};

use crate::client::{Answer, Fixture, Gate, patiently, routed};
use crate::server::{Server, with_key};

/// A service on a Redis, of which it expects an answer within two seconds.
struct Shop {
    redis: RedisServer,
    server: Server,
    events: Events,
    fixture: Fixture,
    gate: Arc<Gate>,
}

impl Shop {
    async fn open() -> Self {
        let redis = RedisServer::builder().append_only_always().start();
        let store = RedisStore::builder(redis.url()).response_timeout(HASTE / 4);
        let (events, fixture) = (Events::default(), Fixture::new());
        let engine = Engine::builder(store.connect().await.unwrap())
            .claim_deadline(HASTE)
            .complete_deadline(HASTE)
            .observer(events.clone());
        let layer = IdempotencyLayer::public(engine.build().unwrap(), "shop.api");
        // A claim whose reply was never received is released in the meantime.
        let layer = layer.on_running(OnRunning::Wait(HASTE + SLACK));
        let gate = Arc::new(Gate::default());
        let (counter, through) = (fixture.clone(), Arc::clone(&gate));
        let handler = post(move |order: String| async move {
            let run = counter.run();
            if order == "slow" {
                through.started.notify_one();
                through.go_on.notified().await;
            }
            format!("{order}: {run}")
        });
        let service = routed(handler, layer);
        let server = Server::start(service).await;
        Self {
            redis,
            server,
            events,
            fixture,
            gate,
        }
    }

    /// A request whose key is like its body.
    async fn order(&self, what: &str) -> Answer {
        self.server.ask(with_key(format!("\"{what}\""), what)).await
    }

    async fn assert_retry_after(&self, what: &str) {
        let runs = self.fixture.runs();
        let refused = self.order(what).await;
        assert_eq!(refused.problem(), (503, "unavailable"));
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(self.fixture.runs(), runs);
    }

    async fn has_stored(&self, times: usize) {
        let stored = self.events.wait_for("completed value", times);
        patiently("the answer is stored", stored).await;
    }

    /// The store goes away while a handler runs.
    async fn goes_away(&self, go_away: impl FnOnce(&RedisServer)) -> Answer {
        let slow = async {
            let answer = self.order("slow").await;
            // It has an answer, stored or not.
            assert_eq!(answer.status, 200);
            assert!(!answer.is_replayed());
            answer
        };
        let away = async {
            self.gate.runs().await;
            go_away(&self.redis);
            self.gate.go_on.notify_one();
        };
        let (answer, ()) = tokio::join!(slow, away);
        assert_eq!(self.events.count("unsaved"), 1);
        answer
    }

    /// Everything is as if it had not been away.
    async fn is_back(&self, answer: &Answer) {
        let replay = self.order("slow").await;
        assert_eq!(replay.body, answer.body);
        assert!(replay.is_replayed());
        assert_eq!(self.fixture.runs(), 1);
    }
}

#[tokio::test]
async fn while_the_store_is_down_clients_come_back_later() {
    let shop = Shop::open().await;
    let tea = shop.order("tea").await;
    assert_eq!(tea.body, "tea: 1");
    shop.redis.kill();
    shop.assert_retry_after("tea").await;
    // The first has waited its whole time, and the others do not. A busy machine may delay some of them.
    let mut took = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        shop.assert_retry_after("coffee").await;
        took.push(began.elapsed());
    }
    assert!(took.iter().any(|took| *took < HASTE / 2), "{took:?}");
    shop.redis.restart();
    let replay = shop.order("tea").await;
    assert_eq!(replay.body, tea.body);
    assert!(replay.is_replayed());
    let coffee = shop.order("coffee").await;
    assert_eq!(coffee.body, "coffee: 2");
    assert!(!coffee.is_replayed());
}

#[tokio::test]
async fn while_the_store_is_paused_clients_come_back_later() {
    let shop = Shop::open().await;
    assert_eq!(shop.order("tea").await.body, "tea: 1");
    shop.redis.pause();
    shop.assert_retry_after("tea").await;
    shop.assert_retry_after("coffee").await;
    shop.redis.resume();
    assert!(shop.order("tea").await.is_replayed());
    assert_eq!(shop.order("coffee").await.body, "coffee: 2");
    assert_eq!(shop.fixture.runs(), 2);
}

#[tokio::test]
async fn a_store_that_dies_in_the_middle_gets_the_answer_when_it_is_back() {
    let shop = Shop::open().await;
    let answer = shop.goes_away(RedisServer::kill).await;
    shop.assert_retry_after("tea").await;
    shop.redis.restart();
    shop.has_stored(1).await;
    shop.is_back(&answer).await;
}

#[tokio::test]
async fn a_store_that_stands_still_in_the_middle_gets_the_answer_when_it_goes_on() {
    let shop = Shop::open().await;
    let answer = shop.goes_away(RedisServer::pause).await;
    shop.assert_retry_after("tea").await;
    shop.redis.resume();
    shop.has_stored(1).await;
    shop.is_back(&answer).await;
}
