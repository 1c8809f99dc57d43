//! Claims that find the file locked: SQLite has one lock for all writers.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};

use idem_runtime::Error;
use idem_runtime::clock::{Clock as _, ManualClock};
use idem_tests::sql::connect;

use super::prelude::*;

on!(sqlite Sqlite:
    a_repeat_waits_for_a_running_body_as_set
    another_writer_is_waited_for_as_set
    committed_answers_need_no_lock
    a_transaction_that_has_read_is_aborted
    a_dropped_claim_restores_the_connection);

/// The longest pause of a claim between two tries for the lock.
const PAUSE: Duration = Duration::from_millis(80);
const SECOND: Duration = Duration::from_secs(1);
/// The engine's, by default.
const CLAIM_DEADLINE: Duration = Duration::from_secs(2);
const REJECT: OnRunning = OnRunning::Reject;
const WAIT: OnRunning = OnRunning::Wait(SECOND);

async fn fixture<D: Database>() -> (ManualClock, Arc<Fixture<D>>) {
    let clock = ManualClock::new();
    let fixture = Fixture::with(|engine| engine.clock(clock.clone())).await;
    (clock, Arc::new(fixture))
}

/// Awaits a call. Time passes only while it pauses; returns that time with the output.
async fn timed<F: Future>(clock: &ManualClock, call: F) -> (F::Output, Duration) {
    let (start, mut call) = (clock.now(), pin!(call));
    let ended = async {
        loop {
            tokio::select! {
                biased;
                output = &mut call => return output,
                () = clock.sleeper_within(PAUSE) => {
                    if let Some(left) = clock.next_wake().filter(|left| *left <= PAUSE) {
                        clock.advance(left);
                    }
                }
            }
        }
    };
    let output = patiently("the call has an answer", ended).await;
    (output, clock.now().saturating_sub(start))
}

/// Awaits a call that pauses until `then` has happened. It waits for one pause at most.
async fn after<T: Debug>(
    clock: &ManualClock,
    call: impl Future<Output = T>,
    then: impl Future<Output = ()>,
) -> T {
    let mut call = pin!(call);
    let pauses = async {
        tokio::select! {
            biased;
            answer = &mut call => panic!("another holds the lock: {answer:?}"),
            () = clock.sleeper_within(PAUSE) => {}
        }
    };
    patiently("the claim pauses", pauses).await;
    then.await;
    let (answer, passed) = timed(clock, call).await;
    assert!(passed <= PAUSE, "{passed:?}");
    answer
}

fn assert_unavailable(error: &Error) {
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error}");
    assert!(error.is_retryable(), "{error}");
    assert_eq!(error.retry_after(), Some(SECOND), "{error}");
}

/// A duplicate during the body, in its own task and connection.
async fn repeat<D: Database>(
    fixture: Arc<Fixture<D>>,
    clock: ManualClock,
    on_running: OnRunning,
) -> (Answer, Duration) {
    let mut tx = fixture.begin().await;
    let call = fixture.order().on_running(on_running);
    let told = timed(&clock, answered(call, &mut tx)).await;
    D::rollback(tx).await.done();
    told
}

async fn a_repeat_waits_for_a_running_body_as_set<D: Database>() {
    for (on_running, patience) in [(REJECT, Duration::ZERO), (WAIT, SECOND)] {
        let (clock, fixture) = fixture::<D>().await;
        let mut tx = fixture.begin().await;
        let body = async |tx: &mut D::Tx, _| {
            let repeat = repeat(Arc::clone(&fixture), clock.clone(), on_running);
            let (answer, passed) = tokio::spawn(repeat).await.unwrap();
            assert_running(&refusal(answer));
            assert_eq!(passed, patience, "{on_running:?}");
            make::<D>(tx, &fixture.runs, "mine").await
        };
        assert_eq!(fixture.order().in_tx(&mut tx).run(body).await, Ok(1));
        D::commit(tx).await.done();
        assert_eq!((fixture.orders("mine").await, fixture.runs.count()), (1, 1));
    }
}

/// The act of the transaction that holds the lock.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Writer {
    Row,
    CallOfAnotherKey,
    /// The engine of the call does not know of it.
    SameCallOfAnotherEngine,
    /// Its transaction is open, and the key is free.
    SameCallUndone,
    /// Its body has ended.
    SameCall,
}

async fn another_writer_is_waited_for_as_set<D: Database>() {
    use Writer::{CallOfAnotherKey, Row, SameCall, SameCallOfAnotherEngine, SameCallUndone};
    const COMMIT: Duration = Duration::from_millis(100);
    let unavailable = [CLAIM_DEADLINE, SECOND + CLAIM_DEADLINE];
    for (writer, patience) in [
        (Row, unavailable),
        (CallOfAnotherKey, unavailable),
        (SameCallOfAnotherEngine, unavailable),
        (SameCallUndone, unavailable),
        (SameCall, [COMMIT, SECOND]),
    ] {
        for (on_running, patience) in [REJECT, WAIT].into_iter().zip(patience) {
            let (clock, fixture) = fixture::<D>().await;
            let mut tx = fixture.begin().await;
            // Its snapshot stays valid, since the other transaction commits nothing.
            assert_eq!(orders::<D>(&mut tx, "mine").await, 0);
            let mut first = fixture.begin().await;
            let mut engine = fixture.engine.clone();
            match writer {
                Row => assert_eq!(insert::<D>(&mut first, "other").await.done(), 1),
                CallOfAnotherKey => {
                    assert_eq!(fixture.ordered_as("other", &mut first).await, Ok(1));
                }
                SameCallUndone => {
                    let down = failed(&fixture, fixture.order(), &mut first, OrderError::Down);
                    assert_eq!(down.await, Err(OrderError::Down));
                }
                SameCallOfAnotherEngine | SameCall => {
                    assert_eq!(fixture.ordered(&mut first).await, Ok(1));
                }
            }
            if writer == SameCallOfAnotherEngine {
                let store = connect::<D>(&fixture.place.url).await;
                let another = Engine::builder(store).clock(clock.clone());
                engine = another.build().unwrap();
            }
            let runs = fixture.runs.count();
            let call = || engine.operation("orders.create").key("order-7");
            let call = || call().on_running(on_running);
            let (answer, passed) = timed(&clock, answered(call(), &mut tx)).await;
            if writer == SameCall {
                assert_running(&refusal(answer));
            } else {
                assert_unavailable(&refusal(answer));
            }
            assert_eq!(passed, patience, "{writer:?} {on_running:?}");
            D::rollback(first).await.done();
            // No transaction is aborted.
            let answer = ordered(&fixture, call(), &mut tx, "mine").await;
            assert_eq!(answer, Ok(runs + 1), "{writer:?} {on_running:?}");
            D::commit(tx).await.done();
            assert_eq!(fixture.orders_of(["mine", "other"]).await, [1, 0]);
        }
    }
}

async fn committed_answers_need_no_lock<D: Database>() {
    let (clock, fixture) = fixture::<D>().await;
    let mut first = fixture.begin().await;
    let call = || fixture.order().fingerprint(&7).on_running(REJECT);
    assert_eq!(ordered(&fixture, call(), &mut first, "mine").await, Ok(1));
    D::commit(first).await.done();
    let mut writer = fixture.begin().await;
    insert::<D>(&mut writer, "other").await.done();
    let mut tx = fixture.begin().await;
    let replay = timed(&clock, answered(call(), &mut tx)).await;
    assert_eq!(replay, (Ok(1), Duration::ZERO));
    let (answer, passed) = timed(&clock, answered(call().fingerprint(&8), &mut tx)).await;
    assert_eq!(*refusal(answer).kind(), ErrorKind::Mismatch);
    assert_eq!(passed, Duration::ZERO);
    D::rollback(writer).await.done();
    D::commit(tx).await.done();
}

/// Its snapshot is outdated by a commit: only then must a transaction be begun again.
async fn a_transaction_that_has_read_is_aborted<D: Database>() {
    let (clock, fixture) = fixture::<D>().await;
    let mut tx = fixture.begin().await;
    assert_eq!(orders::<D>(&mut tx, "other").await, 0);
    let mut writer = fixture.begin().await;
    insert::<D>(&mut writer, "other").await.done();
    let before = settings::<D>(&mut tx).await;
    let call = answered(fixture.order(), &mut tx);
    let answer = after(&clock, call, async { D::commit(writer).await.done() }).await;
    assert_aborted(&refusal(answer));
    assert_eq!(settings::<D>(&mut tx).await, before);
    D::rollback(tx).await.done();
}

/// Polls this many times, once per wake or pause. Returns whether it is still under way.
async fn polled<F: Future>(clock: &ManualClock, mut future: Pin<&mut F>, times: usize) -> bool {
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(true);
        }
        left -= 1;
        let pauses = || clock.next_wake().is_some_and(|left| left <= PAUSE);
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(false),
            Poll::Pending if pauses() => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Dropped after each of its steps, and while it pauses.
async fn a_dropped_claim_restores_the_connection<D: Database>() {
    /// More steps than it has before it pauses.
    const STEPS: usize = 20;
    const ROUNDS: usize = 10;
    let (clock, fixture) = fixture::<D>().await;
    let mut first = fixture.begin().await;
    assert_eq!(fixture.ordered(&mut first).await, Ok(1));
    for steps in (0..ROUNDS).flat_map(|_| 1..=STEPS) {
        let mut tx = fixture.begin().await;
        D::execute(&mut tx, "PRAGMA busy_timeout = 7700")
            .await
            .done();
        let before = settings::<D>(&mut tx).await;
        {
            let call = pin!(answered(fixture.order().on_running(WAIT), &mut tx));
            let is_under_way = patiently("a step", polled(&clock, call, steps)).await;
            assert!(is_under_way, "the first call is not committed");
        }
        assert_eq!(settings::<D>(&mut tx).await, before, "after {steps} steps");
        D::rollback(tx).await.done();
    }
    D::rollback(first).await.done();
}
