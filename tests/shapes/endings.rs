//! How a body ends, and how often it begins: `on_cancel`, `on_panic`, `on_lease_lost`, `on_outage`,
//! `max_attempts`, `count_errors`, `max_run`.

use super::{Runs, engine};
use idem_runtime::{Engine, Error, ErrorKind, idempotent};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
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

/// The call was refused because the outcome of an earlier one is unknown.
#[track_caller]
fn assert_unknown(answer: &Answer) {
    let is_unknown = matches!(answer, Err(Failure::Refused(ErrorKind::Unknown { .. })));
    assert!(is_unknown, "{answer:?}");
}

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

#[idempotent(key = order, on_error = release, on_cancel = hold, on_running = reject)]
async fn held(order: u64, #[idem(skip)] gate: &Gate) -> Answer {
    let _ = order;
    gate.pass().await
}

#[idempotent(key = order, on_error = release, on_cancel = release)]
async fn given_back(order: u64, #[idem(skip)] gate: &Gate) -> Answer {
    let _ = order;
    gate.pass().await
}

#[idempotent(key = order, on_error = release, on_cancel = unknown)]
async fn kept_as_unknown(order: u64, #[idem(skip)] gate: &Gate) -> Answer {
    let _ = order;
    gate.pass().await
}

#[idempotent(key = order, on_error = release, on_cancel = finish, on_lease_lost = cancel)]
async fn finished(order: u64, #[idem(skip)] gate: Arc<Gate>) -> Answer {
    let _ = order;
    gate.pass().await
}

#[tokio::test]
async fn a_dropped_call_ends_as_its_word_says() {
    let (engine, gate) = (engine(), Gate::default());
    drop_half_way(&engine, &gate, held(1, &gate)).await;
    let refused = engine.scope(held(1, &gate)).await;
    let is_running = matches!(refused, Err(Failure::Refused(ErrorKind::Running { .. })));
    assert!(is_running, "{refused:?}");
    let gate = Gate::default();
    drop_half_way(&engine, &gate, given_back(1, &gate)).await;
    assert_eq!(engine.scope(given_back(1, &gate)).await, Ok(2));
    let gate = Gate::default();
    drop_half_way(&engine, &gate, kept_as_unknown(1, &gate)).await;
    assert_unknown(&engine.scope(kept_as_unknown(1, &gate)).await);
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

    #[idempotent(on_error = release, on_cancel = finish)]
    async fn owned(self, order: u64) -> Answer {
        let _ = order;
        self.0.pass().await
    }
}

#[tokio::test]
async fn a_body_of_its_own_may_own_anything() {
    let till = Till(Gate::default());
    till.0.on.notify_one();
    assert_eq!(engine().scope(till.owned(1)).await, Ok(1));
    let till = Arc::new(Till(Gate::default()));
    till.0.on.notify_one();
    let judge = Box::new(|note: &str| note == "note");
    let answer = engine()
        .scope(Arc::clone(&till).shared(1, judge, "note"))
        .await;
    assert_eq!(answer, Ok(1));
}

/// The answer, or `None` if the call panics.
async fn caught(call: impl Future<Output = Answer>) -> Option<Answer> {
    let mut call = pin!(call);
    std::future::poll_fn(|cx| {
        let poll = AssertUnwindSafe(|| call.as_mut().poll(cx));
        std::panic::catch_unwind(poll).map_or(Poll::Ready(None), |poll| poll.map(Some))
    })
    .await
}

fn panic_until(runs: &Runs, last: usize) -> usize {
    let run = runs.hit();
    assert!(run > last, "a bug");
    run
}

#[idempotent(key = order, on_error = release, on_panic = unknown)]
async fn panics_unknown(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = order;
    Ok(panic_until(runs, 1))
}

#[idempotent(key = order, on_error = release, on_panic = release, max_attempts = 1)]
async fn panics_once(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = order;
    Ok(panic_until(runs, 1))
}

#[idempotent(key = order, on_error = release, max_attempts = unlimited, max_run = "1h")]
async fn panics_often(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = order;
    Ok(panic_until(runs, 9))
}

#[tokio::test]
async fn a_panic_ends_as_its_words_say() {
    let (engine, runs) = (engine(), Runs::default());
    assert_eq!(caught(engine.scope(panics_unknown(1, &runs))).await, None);
    assert_unknown(&engine.scope(panics_unknown(1, &runs)).await);
    let runs = Runs::default();
    assert_eq!(caught(engine.scope(panics_once(1, &runs))).await, None);
    let exhausted = Failure::Refused(ErrorKind::Exhausted { attempts: 1 });
    assert_eq!(engine.scope(panics_once(1, &runs)).await, Err(exhausted));
    let runs = Runs::default();
    for _ in 0..9 {
        assert_eq!(caught(engine.scope(panics_often(1, &runs))).await, None);
    }
    assert_eq!(engine.scope(panics_often(1, &runs)).await, Ok(10));
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

/// Written by hand: the code before its future is body as well.
#[idempotent(op = "endings.boxed", key = order, on_error = release)]
fn boxed<'a>(
    order: u64,
    #[idem(skip)] runs: &'a Runs,
) -> std::pin::Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
    let _ = order;
    let run = runs.hit();
    Box::pin(async move { Ok(run) })
}

#[tokio::test]
async fn nothing_of_a_boxed_body_runs_on_a_replay() {
    let (engine, runs) = (engine(), Runs::default());
    assert_eq!(engine.scope(boxed(1, &runs)).await, Ok(1));
    assert_eq!(engine.scope(boxed(1, &runs)).await, Ok(1));
    assert_eq!(runs.count(), 1);
}
