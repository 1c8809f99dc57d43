//! How a body ends, and how often it begins: `on_cancel`, `on_panic`, `on_lease_lost`, `on_outage`,
//! `max_attempts`, `count_errors`, `max_run`.

use super::{Runs, engine};
use idem_runtime::{Engine, Error, ErrorKind, idempotent};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug, PartialEq, Eq)]
enum Failure {
    Failed,
    Refused(ErrorKind),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error.kind().clone())
    }
}

type Answer = Result<usize, Failure>;

/// The place where a body stops: it has begun, and waits to be let on.
#[derive(Debug, Default)]
struct Gate {
    begun: Notify,
    on: Notify,
    runs: Runs,
}

impl Gate {
    /// The first body to come stops; a later one passes.
    async fn pass(&self) -> Answer {
        let run = self.runs.hit();
        if run == 1 {
            self.begun.notify_one();
            self.on.notified().await;
        }
        Ok(run)
    }
}

/// Begins the call, and drops it where its body stops.
async fn drop_half_way(engine: &Engine, gate: &Gate, call: impl Future<Output = Answer>) {
    tokio::select! {
        biased;
        () = gate.begun.notified() => {}
        answer = engine.scope(call) => panic!("the body does not stop: {answer:?}"),
    }
}

#[idempotent(
    key = order,
    on_error = release,
    on_cancel = hold,
    on_panic = release,
    on_lease_lost = cancel,
    on_unconfirmed = within_lease,
    on_outage = fail,
    on_other_type = reject,
    max_attempts = unlimited
)]
async fn careful(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[idempotent(
    key = order,
    on_error = release,
    on_cancel = release,
    on_panic = unknown,
    on_unconfirmed = fail,
    on_outage = run,
    on_other_type = accept
)]
async fn careless(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[idempotent(key = order, on_error = release, on_cancel = unknown, on_unconfirmed = return)]
async fn returned(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[tokio::test]
async fn every_word_is_a_variant_of_its_setting() {
    let runs = Runs::default();
    let calls = async {
        for _ in 0..2 {
            assert_eq!(careful(1, &runs).await, Ok(1));
            assert_eq!(careless(1, &runs).await, Ok(2));
            assert_eq!(returned(1, &runs).await, Ok(3));
        }
    };
    engine().scope(calls).await;
}

#[idempotent(key = order, on_error = release, on_cancel = finish, on_lease_lost = cancel)]
async fn finished(order: u64, #[idem(skip)] gate: Arc<Gate>) -> Answer {
    gate.pass().await
}

#[tokio::test]
async fn a_dropped_call_finishes() {
    let (engine, gate) = (engine(), Arc::<Gate>::default());
    drop_half_way(&engine, &gate, finished(1, Arc::clone(&gate))).await;
    gate.on.notify_one();
    assert_eq!(engine.scope(finished(1, Arc::clone(&gate))).await, Ok(1));
    assert_eq!(gate.runs.count(), 1);
}

struct Till(Gate);

impl Till {
    #[idempotent(op = "endings.shared", on_error = release, on_cancel = finish, count_errors = false)]
    async fn shared<T: serde::Serialize + Send + Sync + 'static>(
        self: Arc<Self>,
        order: T,
        #[idem(skip)] judge: Box<dyn Fn(&str) -> bool + Send>,
        note: &'static str,
    ) -> Answer {
        drop(order);
        assert!(judge(note));
        self.0.pass().await
    }
}

#[tokio::test]
async fn a_body_of_its_own_may_own_anything() {
    let till = Arc::new(Till(Gate::default()));
    till.0.on.notify_one();
    let judge = Box::new(|note: &str| note == "note");
    let answer = engine()
        .scope(Arc::clone(&till).shared(1, judge, "note"))
        .await;
    assert_eq!(answer, Ok(1));
}

const RUN: Duration = Duration::from_mins(10);

#[idempotent(
    key = order,
    on_error = release,
    max_attempts = 2,
    count_errors = true,
    on_outage = run,
    on_lease_lost = continue,
    max_run = RUN,
)]
async fn fails(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = (order, runs.hit());
    Err(Failure::Failed)
}

#[tokio::test]
async fn errors_are_counted() {
    let (engine, runs) = (engine(), Runs::default());
    for _ in 0..2 {
        assert_eq!(engine.scope(fails(1, &runs)).await, Err(Failure::Failed));
    }
    assert_eq!(
        engine.scope(fails(1, &runs)).await,
        Err(Failure::Refused(ErrorKind::Exhausted { attempts: 2 }))
    );
    assert_eq!(runs.count(), 2);
}
