//! The span of each path of a call, with its events.

use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use idem_runtime::claim::Acquired;
use idem_runtime::observe::{MetricsObserver, TracingObserver};
use idem_runtime::store::sql::Sqlite;
use idem_runtime::{Engine, OnCancel, OnLeaseLost, OnPanic, Reconciled, step};
use idem_tests::faulty::{Fault, StoreOperation};
use idem_tests::payment::{PayError, Receipt};
use idem_tests::sql::connect;
use sqlx::{Connection as _, SqliteConnection};
use tokio::sync::Semaphore;
use tracing::{Instrument as _, Level, info, info_span};

use crate::seen::{Seen, all};
use crate::support::{Answer, Shop, end, never, receipt, refusal};

/// Polls a future once, which must not end by that.
fn poll_once<F: Future>(call: std::pin::Pin<&mut F>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(call.poll(&mut context), Poll::Pending));
}

#[track_caller]
fn assert_has(span: &Seen, events: &[&str]) {
    for event in events {
        assert!(span.has(event), "{event}: {span:?}");
    }
}

#[tokio::test]
async fn a_first_call_and_its_replay_are_a_span_each() {
    let shop = Shop::new("first.pay");
    let body = |_| async {
        info!("the body runs");
        let _ = idem_runtime::context().derive_key("bank.charge");
        shop.clock.advance(Duration::from_millis(25));
        receipt(1)
    };
    let request = info_span!("request");
    shop.pay().run(body).instrument(request).await.unwrap();
    shop.pay().run(|_| async { never() }).await.unwrap();
    let [first, replay] = &shop.closed(2).await[..] else {
        panic!("a span each");
    };
    assert_eq!((&*first.target, first.parent), ("idem", Some("request")));
    assert_eq!(end(first), ("executed", "value"));
    assert_eq!(first.field("idem.attempt"), "1");
    assert_eq!(first.field("idem.body_ms"), "25.0");
    assert_eq!(first.field("idem.store_ms"), "0.0");
    assert_eq!(first.field("idem.key").len(), 43, "{first:?}");
    assert_has(first, &["claimed", "the body runs", "completed"]);
    assert_eq!(first.level("key derived"), Some(Level::DEBUG));
    assert_eq!(first.level("claimed"), Some(Level::DEBUG));
    assert_eq!(end(replay), ("replayed", "value"));
    assert_eq!(replay.field("idem.local"), "false");
    assert_eq!(replay.field("idem.body_ms"), "", "no body ran");
    assert_eq!(replay.field("otel.status_code"), "");
    assert!(replay.has("replayed"), "{replay:?}");
    assert_eq!(first.field("idem.key"), replay.field("idem.key"));
}

#[tokio::test]
async fn a_follower_has_the_time_of_its_wait() {
    let shop = Arc::new(Shop::new("follower.pay"));
    let gate = Arc::new(Semaphore::new(0));
    let mut leader = Box::pin(shop.pay().run(|_| async {
        gate.acquire().await.unwrap().forget();
        receipt(1)
    }));
    poll_once(leader.as_mut());
    let mut follower = Box::pin(shop.pay().run(|_| async { never() }));
    poll_once(follower.as_mut());
    shop.clock.advance(Duration::from_millis(300));
    gate.add_permits(1);
    leader.await.unwrap();
    follower.await.unwrap();
    let spans = shop.closed(2).await;
    assert_eq!(end(&spans[1]), ("replayed", "value"));
    assert_eq!(spans[1].field("idem.waited_ms"), "300.0");
    assert_eq!(spans[1].field("idem.store_ms"), "0.0");
    assert_eq!(shop.metric("idem_wait_seconds_count", &[]), 1.0);
    assert!((shop.metric("idem_wait_seconds_sum", &[]) - 0.3).abs() < 1e-9);
}

#[tokio::test]
async fn a_business_error_and_a_system_error_have_their_results() {
    let shop = Shop::new("errors.pay");
    let down = shop.pay().run(|_| async { Err(PayError::Down) as Answer });
    assert_eq!(down.await, Err(PayError::Down));
    let declined = PayError::Declined { run: 2 };
    let answer = shop
        .pay()
        .run(|_| async { Err(declined.clone()) as Answer });
    assert_eq!(answer.await, Err(declined.clone()));
    let again = shop.pay().run(|_| async { never() }).await;
    assert_eq!(again, Err(declined));
    let spans = shop.closed(3).await;
    assert_eq!(end(&spans[0]), ("executed", "released"));
    assert_has(&spans[0], &["released"]);
    assert_eq!(end(&spans[1]), ("executed", "error"));
    assert_eq!(end(&spans[2]), ("replayed", "error"));
}

#[tokio::test]
async fn an_unknown_outcome_is_an_error_in_its_trace() {
    let shop = Shop::new("unknown.pay");
    let late = shop.pay().label("order 7");
    let late = late.run(|_| async { Err(PayError::TimedOut) as Answer });
    assert_eq!(late.await, Err(PayError::TimedOut));
    let error = refusal(shop.pay().label("order 7").run(|_| async { never() }).await);
    assert_eq!(error.kind().as_str(), "unknown");
    let spans = shop.closed(2).await;
    // The line of the alarm leads to the order, and says what to do.
    let mut events = spans[0].events.iter();
    let line = events.find(|(_, text)| text.starts_with("completed"));
    let (level, line) = line.expect("it is completed");
    assert_eq!(*level, Level::WARN);
    for part in ["order 7", "of class unknown", "idem show"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    // A client that reports the instance of its problem document leads to the line.
    let instance = error.instance();
    assert!(instance.starts_with("urn:uuid:"), "{instance}");
    let has = |part: &str| spans[1].events.iter().any(|(_, text)| text.contains(part));
    assert!(has(instance) && has("order 7"), "{:?}", spans[1]);
    assert_eq!(end(&spans[0]), ("executed", "unknown"));
    assert_eq!(end(&spans[1]), ("refused", "unknown"));
    assert_eq!(spans[1].level("refused"), Some(Level::ERROR));
    for span in spans {
        assert_eq!(span.field("otel.status_code"), "ERROR");
    }
    assert_eq!(shop.metric("idem_unknown_outcomes_total", &[]), 1.0);
}

#[tokio::test]
async fn a_reconciled_call_has_its_hook_in_its_span() {
    let shop = Shop::new("reconciled.pay");
    let late = shop
        .pay()
        .run(|_| async { Err(PayError::TimedOut) as Answer });
    assert_eq!(late.await, Err(PayError::TimedOut));
    let hook = |_| async {
        info!("the hook asks");
        Reconciled::Landed(Receipt { run: 1 })
    };
    let found: Answer = shop.pay().run_reconciled(hook, |_| async { never() }).await;
    assert_eq!(found, receipt(1));
    let spans = shop.closed(2).await;
    assert_eq!(end(&spans[1]), ("reconciled", "value"));
    assert_has(
        &spans[1],
        &["reconciling", "the hook asks", "reconciled", "completed"],
    );
    assert_eq!(shop.calls("reconciled", "value"), 1.0);
}

#[tokio::test]
async fn a_cancelled_call_ends_with_its_caller() {
    let shop = Shop::new("cancelled.pay");
    let call = shop.pay().on_cancel(OnCancel::Release);
    let mut call = Box::pin(call.run(|_| pending::<Answer>()));
    poll_once(call.as_mut());
    assert_eq!(shop.metric("idem_running_calls", &[]), 1.0);
    drop(call);
    let spans = shop.closed(1).await;
    assert_eq!(end(&spans[0]), ("cancelled", "none"));
    // The release is sent by the engine's thread.
    assert_has(&spans[0], &["dropped", "released"]);
    assert_eq!(shop.metric("idem_running_calls", &[]), 0.0);
    assert_eq!(shop.calls("cancelled", "none"), 1.0);
}

#[tokio::test]
async fn a_finished_body_keeps_its_span_after_its_caller() {
    let shop = Shop::new("finish.pay");
    let gate = Arc::new(Semaphore::new(0));
    let begun = Arc::new(Semaphore::new(0));
    let (body_gate, body_begun) = (Arc::clone(&gate), Arc::clone(&begun));
    let mut call = Box::pin(shop.pay().finish(move |_| async move {
        body_begun.add_permits(1);
        body_gate.acquire().await.unwrap().forget();
        info!("the body ends");
        receipt(1)
    }));
    tokio::select! {
        _ = &mut call => unreachable!("the body waits"),
        begun = begun.acquire() => begun.unwrap().forget(),
    }
    drop(call);
    gate.add_permits(1);
    let spans = shop.closed(1).await;
    assert_eq!(end(&spans[0]), ("executed", "value"));
    assert_has(&spans[0], &["claimed", "the body ends", "completed"]);
}

#[tokio::test]
async fn steps_are_events_of_their_call() {
    let shop = Shop::new("steps.pay");
    let body = |fails: bool| async move {
        step("charge", async |_| Ok::<_, PayError>(1)).await?;
        if fails {
            return Err(PayError::Down);
        }
        receipt(1)
    };
    let first = shop.pay().run(|_| body(true)).await;
    assert_eq!(first, Err(PayError::Down));
    shop.pay().run(|_| body(false)).await.unwrap();
    let spans = shop.closed(2).await;
    assert_has(&spans[0], &["step kept"]);
    assert_has(&spans[1], &["step replayed"]);
    assert_eq!(shop.metric("idem_steps_total", &["outcome=\"kept\""]), 1.0);
    assert_eq!(
        shop.metric("idem_steps_total", &["outcome=\"replayed\""]),
        1.0
    );
}

#[tokio::test]
async fn renewals_and_a_lost_lease_are_in_the_span_of_their_call() {
    let shop = Shop::new("lease.pay");
    let second = Duration::from_secs(1);
    let call = shop.pay().lease(30 * second).max_run(35 * second);
    let call = call.on_lease_lost(OnLeaseLost::Continue);
    let gate = Semaphore::new(0);
    let mut call = Box::pin(call.run(|_| async {
        gate.acquire().await.unwrap().forget();
        receipt(1)
    }));
    poll_once(call.as_mut());
    shop.clock.sleeper_within(10 * second).await;
    shop.clock.advance(10 * second);
    shop.events.wait_for("renewed", 1).await;
    shop.store.fail(StoreOperation::Renew, [Fault::Lost]);
    shop.clock.sleeper_within(10 * second).await;
    shop.clock.advance(10 * second);
    shop.events.wait_for("renewal failed", 1).await;
    shop.clock.sleeper_within(15 * second).await;
    shop.clock.advance(15 * second);
    shop.events.wait_for("lease lost", 1).await;
    gate.add_permits(1);
    call.await.unwrap();
    let spans = shop.closed(1).await;
    assert_eq!(spans[0].level("renewed"), Some(Level::TRACE));
    assert_eq!(spans[0].level("renewal failed"), Some(Level::WARN));
    assert_eq!(spans[0].level("lease lost"), Some(Level::WARN));
    assert_eq!(shop.metric("idem_renewals_total", &["\"failed\""]), 1.0);
    assert_eq!(shop.metric("idem_leases_lost_total", &[]), 1.0);
}

#[tokio::test]
async fn a_call_in_a_transaction_is_a_span_with_its_body() {
    let dir = std::env::temp_dir().join(format!("idem-observed-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let url = format!("sqlite:{}", dir.join("shop.db").display());
    let store = connect::<Sqlite>(&url).await;
    store.migrate().await.unwrap();
    all();
    let engine = Engine::builder(store).observer((MetricsObserver::new(), TracingObserver));
    let engine = engine.build().unwrap();
    let shop = Shop::new("tx.pay");
    let pay = async |answer: Answer| {
        let mut conn = SqliteConnection::connect(&url).await.unwrap();
        let call = engine.operation("tx.pay").key(&7).in_tx(&mut conn);
        let body = async |_: &mut SqliteConnection, _| {
            info!("the body writes");
            answer
        };
        call.run(body).await
    };
    assert_eq!(pay(Err(PayError::Down)).await, Err(PayError::Down));
    assert_eq!(pay(receipt(1)).await, receipt(1));
    assert_eq!(pay(receipt(2)).await, receipt(1));
    let spans = shop.closed(3).await;
    assert_eq!(end(&spans[0]), ("executed", "released"));
    assert_eq!(end(&spans[1]), ("executed", "value"));
    assert_has(&spans[1], &["claimed", "the body writes", "completed"]);
    assert_eq!(end(&spans[2]), ("replayed", "value"));
    assert_eq!(shop.calls("executed", "value"), 1.0);
    assert_eq!(shop.metric("idem_running_calls", &[]), 0.0);
    assert_eq!(shop.metric("idem_body_seconds_count", &[]), 2.0);
    drop(engine);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn a_panic_ends_its_span() {
    let shop = Shop::new("panic.pay");
    let call = shop.pay().on_panic(OnPanic::Unknown);
    let call = call.run(|_| async { std::panic::panic_any("out of paper") as Answer });
    let panic = tokio::spawn(call).await.unwrap_err();
    assert!(panic.is_panic());
    let spans = shop.closed(1).await;
    assert_eq!(end(&spans[0]), ("panicked", "none"));
    assert_eq!(spans[0].field("otel.status_code"), "ERROR");
    assert_eq!(shop.metric("idem_running_calls", &[]), 0.0);
    assert_eq!(shop.metric("idem_unknown_outcomes_total", &[]), 1.0);
}

#[tokio::test]
async fn a_claim_is_a_call_until_it_is_completed() {
    let shop = Shop::new("claim.pay");
    let Acquired::Run(claim) = shop.pay().begin().await.unwrap() else {
        panic!("it is the first");
    };
    shop.clock.advance(Duration::from_millis(40));
    claim.complete(7).await.unwrap();
    let again = shop.pay().begin().await.unwrap();
    assert!(matches!(again, Acquired::Replay(_)));
    let other = shop.engine.operation(shop.operation).key(&8);
    drop(other.begin().await.unwrap());
    let spans = shop.closed(3).await;
    assert_eq!(end(&spans[0]), ("executed", "value"));
    assert_eq!(spans[0].field("idem.body_ms"), "40.0");
    assert_has(&spans[0], &["completed"]);
    assert_eq!(end(&spans[1]), ("replayed", "value"));
    assert_eq!(end(&spans[2]), ("cancelled", "none"));
    assert_has(&spans[2], &["dropped"]);
}
