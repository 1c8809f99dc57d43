//! Leases of recorded and held streams.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::FutureExt as _;
use idem_runtime::http::IdempotencyLayer;
use idem_runtime::testing::{Fault, StoreOperation};
use idem_runtime::{Context, Error, ErrorKind, OnLeaseLost, OnRunning, OnUnconfirmed, context};

use super::super::bodies::next;
use super::shop::{EVENTS, FUSE, ONE, Set, Shop, TWO, assert_both, landed, spawn_next};
use crate::client::{
    Gate, Source, call, data, frames, order, patiently, ran, replayed, routed, send, spawn,
};

/// A handler at a gate before its stream.
#[derive(Default)]
struct Handler {
    gate: Arc<Gate>,
    context: Arc<Mutex<Option<Context>>>,
    body: Arc<Mutex<Option<Body>>>,
}

impl Handler {
    fn service(&self, layer: &IdempotencyLayer) -> Router {
        let (gate, body) = (Arc::clone(&self.gate), Arc::clone(&self.body));
        let of_test = Arc::clone(&self.context);
        let answers = axum::routing::post(move || async move {
            *of_test.lock().unwrap() = Some(context());
            gate.started.notify_one();
            gate.go_on.notified().await;
            (
                [("content-type", EVENTS)],
                body.lock().unwrap().take().unwrap(),
            )
        });
        routed(answers, layer.clone())
    }

    async fn runs(&self) -> Context {
        self.gate.runs().await;
        self.context.lock().unwrap().take().unwrap()
    }

    /// It answers with a stream that begins with this.
    fn answers(&self, text: &'static str) -> Source {
        let (source, body) = frames();
        source.send(data(text)).unwrap();
        *self.body.lock().unwrap() = Some(body);
        self.gate.go_on.notify_one();
        source
    }
}

/// A handler that watches its lease while it streams: no other attempt is granted the key, though the record has no claim.
#[tokio::test]
async fn the_lease_is_not_lost_while_a_stream_is_recorded() {
    let shop = Shop::open(|layer| layer);
    let handler = Handler::default();
    let client = spawn(&handler.service(&shop.layer), order(""));
    let context = handler.runs().await;
    let source = handler.answers(ONE);
    shop.sent(StoreOperation::Complete, 1).await;
    shop.fixture.clock.advance(Duration::from_secs(10));
    shop.sent(StoreOperation::Renew, 1).await;
    // Read on the thread of the renewal, and after it.
    assert!(shop.entry().await.is_streaming());
    shop.fixture.clock.advance(Duration::from_mins(2));
    assert!(!context.lease_remaining().is_zero());
    assert!(context.lease_lost().now_or_never().is_none());
    assert_eq!(shop.fixture.events.count("lease lost"), 0);
    drop(source);
    shop.completed().await;
    assert_eq!(client.await.unwrap().said(), (200, ONE));
}

/// Another server takes over the claim, which lapses in an outage.
#[tokio::test]
async fn a_held_stream_loses_its_lease_as_a_running_handler() {
    for on_lease_lost in [OnLeaseLost::Continue, OnLeaseLost::Cancel] {
        let mut shop = Shop::open(|layer| landed(layer.on_lease_lost(on_lease_lost)));
        let mut response = shop.first().await;
        shop.write(FUSE);
        shop.store.fail(StoreOperation::Renew, [Fault::Unreachable]);
        shop.fixture.clock.advance(Duration::from_secs(31));
        let elsewhere = shop.elsewhere();
        if on_lease_lost == OnLeaseLost::Cancel {
            patiently("the stream is dropped", shop.source().closed()).await;
            let rest = patiently("its client learns of it", spawn_next(response)).await;
            assert!(rest.unwrap_err().is_panic(), "not as a stream that ends");
            shop.repeats("after the lease", &elsewhere, replayed("found"))
                .await;
            continue;
        }
        shop.fixture.saw("renewal failed", 1).await;
        shop.repeats("after the lease", &elsewhere, replayed("found"))
            .await;
        let renewed = shop.fixture.clock.sleeper_within(Duration::from_secs(3));
        patiently("the next renewal is due", renewed).await;
        shop.fixture.clock.advance(Duration::from_secs(3));
        shop.fixture.saw("lease lost", 1).await;
        shop.write(TWO);
        assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
        shop.end();
        shop.fixture.saw("adopted", 1).await;
        shop.repeats("after the lease", &elsewhere, replayed("found"))
            .await;
    }
}

/// A task of the handler has steps after the first byte; a held claim records them.
#[tokio::test]
async fn a_step_that_ends_beside_the_stream_costs_no_answer() {
    for (set, keeps) in [(landed as Set, true), (|layer| layer, false)] {
        for on_lease_lost in [OnLeaseLost::Continue, OnLeaseLost::Cancel] {
            let shop = Shop::open(|layer| set(layer.on_lease_lost(on_lease_lost)));
            let handler = Handler::default();
            let service = handler.service(&shop.layer);
            let client = tokio::spawn(async move { call(&service, order("")).await });
            let context = handler.runs().await;
            let gate = Arc::new(Gate::default());
            let (cx, through) = (context.clone(), Arc::clone(&gate));
            let begun = tokio::spawn(async move {
                let part = async |_| {
                    through.started.notify_one();
                    through.go_on.notified().await;
                    Ok::<_, Error>(7)
                };
                cx.step("charge", part).await
            });
            gate.runs().await;
            let source = handler.answers(ONE);
            let mut response = patiently("a response", client).await.unwrap();
            assert_eq!(next(&mut response).await.unwrap().unwrap(), ONE.as_bytes());
            gate.go_on.notify_one();
            let begun = patiently("the end of a step", begun).await.unwrap();
            let later = context.step("mail", async |_| Ok::<_, Error>(7)).await;
            for step in [begun, later] {
                let step = step.map_err(|error| error.kind().clone());
                let expected = if keeps {
                    Ok(7)
                } else {
                    Err(ErrorKind::InvalidStep)
                };
                assert_eq!(step, expected);
            }
            assert!(context.lease_lost().now_or_never().is_none());
            source.send(data(TWO)).unwrap();
            drop(source);
            assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
            shop.completed().await;
            assert_both(&shop.repeat().await);
        }
    }
}

/// The handler answers after its lease: an answer that may differ from another one is not passed on.
#[tokio::test]
async fn a_stream_after_its_lease_is_passed_on_if_no_other_attempt_has_the_key() {
    let forgotten: Set = |layer| {
        let second = Duration::from_secs(1);
        layer.ttl(second).error_ttl(second)
    };
    // The lease is shorter than `complete_deadline`.
    let brief: Set = |layer| landed(layer.lease(Duration::from_secs(1)));
    let all = [
        OnUnconfirmed::WithinLease,
        OnUnconfirmed::Fail,
        OnUnconfirmed::Return,
    ];
    let lenient = &all[2..];
    for (set, meanwhile, is_confirmed_late, passes) in [
        (landed as Set, None, false, &all[..]),
        // Its hook has found another answer.
        (landed, Some(("tea", replayed("found"))), false, lenient),
        // The record was lost, and is another request's: the store does not take the unknown outcome.
        (forgotten, Some(("rum", ran("1"))), false, lenient),
        // Another attempt may have the key again by the time of the reply.
        (brief, None, true, lenient),
    ] {
        for on_unconfirmed in all {
            let shop = Shop::open(|layer| set(layer.on_unconfirmed(on_unconfirmed)));
            let handler = Handler::default();
            let client = spawn(&handler.service(&shop.layer), order("tea"));
            let context = handler.runs().await;
            shop.store
                .fail(StoreOperation::Renew, [Fault::Unreachable; 100]);
            shop.fixture.clock.advance(Duration::from_secs(61));
            shop.fixture.saw("renewal failed", 1).await;
            if let Some((request, seen)) = meanwhile {
                let row = (request, order(request), seen);
                shop.fixture.walk(&shop.elsewhere(), [row]).await;
            }
            shop.store.heal();
            let renewals = shop.store.count(StoreOperation::Renew);
            let source = handler.answers(ONE);
            if is_confirmed_late && on_unconfirmed != OnUnconfirmed::Return {
                let due = std::iter::repeat_n(Fault::Unreachable, 100);
                let held = std::iter::once(Fault::ReplyHeld);
                shop.store.fail(StoreOperation::Renew, held.chain(due));
                shop.sent(StoreOperation::Renew, renewals + 1).await;
                shop.fixture.clock.advance(Duration::from_millis(1_500));
                shop.store.deliver();
            }
            drop(source);
            let client = patiently("an answer", client).await.unwrap();
            if passes.contains(&on_unconfirmed) {
                assert_eq!(client.said(), (200, ONE));
            } else {
                assert_eq!(client.problem(), (503, "answer-unconfirmed"));
            }
            if meanwhile.is_some() {
                assert!(context.lease_remaining().is_zero());
            }
        }
    }
}

/// As of an ordinary answer, once the other attempt has none.
#[tokio::test]
async fn the_answer_of_an_overtaken_stream_saves_a_third_run() {
    let shop = Shop::open(|layer| layer.on_running(OnRunning::Reject));
    let handler = Handler::default();
    let client = spawn(&handler.service(&shop.layer), order(""));
    handler.runs().await;
    shop.store
        .fail(StoreOperation::Renew, [Fault::Unreachable; 100]);
    shop.fixture.clock.advance(Duration::from_secs(31));
    let gate = Arc::new(Gate::default());
    let through = Arc::clone(&gate);
    let fails = axum::routing::post(move || async move {
        through.started.notify_one();
        through.go_on.notified().await;
        http::StatusCode::SERVICE_UNAVAILABLE
    });
    let again = routed(fails, shop.other.clone());
    let second = spawn(&again, order(""));
    gate.runs().await;
    let source = handler.answers(ONE);
    let client = patiently("a refusal", client).await.unwrap();
    assert_eq!(client.problem(), (409, "request-running"));
    gate.go_on.notify_one();
    let second = patiently("it fails", second).await.unwrap();
    assert_eq!(second.status, 503);
    source.send(data(TWO)).unwrap();
    drop(source);
    let stored = || shop.fixture.events.count("completed value") == 1;
    shop.passes("it is stored", stored).await;
    assert_both(&send(&again, order("")).await);
}
