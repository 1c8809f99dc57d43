//! A future that is dropped, wherever it stands: nothing that finished is lost or freed, and the key
//! is treated as the operation says.

use std::sync::PoisonError;

use idem_tests::events::Events;
use idem_tests::faulty::Faulty;

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    dropped_at_every_poll_of_a_first_call, dropped_at_every_poll_of_a_replay,
    a_body_is_gone_before_its_key_is_free, a_release_on_drop_that_is_lost_is_sent_again,
    an_ending_is_sent_to_its_end_although_its_caller_has_gone, a_hold_sends_nothing_to_the_store,
}

/// How far a body came.
#[derive(Clone, Debug, Default)]
struct Steps {
    begun: Runs,
    ended: Runs,
}

/// A body of three awaits that ends with this.
async fn body(steps: Steps, answer: Answer) -> Answer {
    let _ = steps.begun.start();
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    let _ = steps.ended.start();
    answer
}

/// More polls than any of these calls takes; the call that ends before shows that all were tried.
const POLLS: usize = 1_000;

/// A key whose body never began is as if never called. A claim on the wire when its caller goes may arrive behind its
/// own release; then it is over with its lease.
async fn is_free(fixture: &Fixture, again: &dyn Fn() -> Pay) {
    let runs = Runs::default();
    let answer = paid(again(), &runs).await;
    if answer != receipt(1) {
        assert_running(&refusal(answer));
        fixture.pass_in_store(LEASE_OVER);
        assert_eq!(paid(again(), &runs).await, receipt(1));
    }
}

/// Drops a call after each number of polls, with new engines. Checks the key when the engine is idle.
async fn dropped_at_every_poll_of_a_first_call(mut fixture: Fixture) {
    for (on_cancel, answer) in [
        (OnCancel::Hold, receipt(7)),
        (OnCancel::Release, receipt(7)),
        (OnCancel::Unknown, receipt(7)),
        (OnCancel::Unknown, Err(PayError::Down)),
    ] {
        for polls in 0.. {
            assert!(polls < POLLS, "the call never ends");
            let (steps, key) = (
                Steps::default(),
                format!("{on_cancel:?} {answer:?} {polls}"),
            );
            let pay = fixture.engine.operation("pay").key(&key);
            let call = pay.on_cancel(on_cancel);
            let call = call.run(|_| body(steps.clone(), answer.clone()));
            let ended = poll_times(call, polls).await;
            comes_to_rest(&fixture).await;
            let far = fixture.far.clone();
            let again = || far.operation("pay").key(&key).on_running(OnRunning::Reject);
            let (has_begun, has_ended) = (steps.begun.count() > 0, steps.ended.count() > 0);
            if has_ended && answer.is_ok() {
                assert_eq!(answered(again()).await, answer, "{key}");
            } else if has_begun && !has_ended {
                is_cancelled(&fixture, on_cancel, &again).await;
            } else {
                // It never began, or has given its key back.
                is_free(&fixture, &again).await;
            }
            if let Some(output) = ended {
                assert_eq!(output, answer, "{key}");
                assert!(polls > 3, "the body alone takes four polls");
                break;
            }
            fixture = fixture.with(|engine| engine);
        }
    }
}

/// The key of a dropped body is treated as its operation requires.
async fn is_cancelled(fixture: &Fixture, on_cancel: OnCancel, again: &dyn Fn() -> Pay) {
    let second = || again().run(|cx| async move { receipt(cx.attempt().into()) });
    match on_cancel {
        OnCancel::Release => assert_eq!(second().await, receipt(1), "it is free at once"),
        OnCancel::Unknown => assert_unknown(&refusal(answered(again()).await)),
        _ => {
            assert_running(&refusal(answered(again()).await));
            fixture.pass_in_store(LEASE_OVER);
            assert_eq!(second().await, receipt(2), "the first attempt counts");
        }
    }
}

async fn dropped_at_every_poll_of_a_replay(mut fixture: Fixture) {
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    for polls in 0..POLLS {
        let ended = poll_times(answered(fixture.pay()), polls).await;
        comes_to_rest(&fixture).await;
        assert_eq!(answered(fixture.pay_far()).await, receipt(1));
        if ended.is_some() {
            return;
        }
        fixture = fixture.with(|engine| engine);
    }
    unreachable!("the call never ends");
}

/// A value held by a body: when dropped, it records how often the end of the body had been reported.
struct Holds {
    events: Events,
    store: Faulty,
    before: usize,
    told: Arc<Mutex<Option<usize>>>,
}

impl Drop for Holds {
    fn drop(&mut self) {
        let stored = stored(&self.store) - self.before;
        let told = stored + self.events.count("dropped") + self.events.count("panicked");
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    }
}

/// How many endings were sent.
fn stored(store: &Faulty) -> usize {
    store.count(StoreOperation::Release) + store.count(StoreOperation::Complete)
}

/// What ends a body that holds such a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    Panic,
    LostLease,
    Drop(OnCancel),
}

async fn a_body_is_gone_before_its_key_is_free(mut fixture: Fixture) {
    for (ends, event) in [
        (Ends::Panic, "released and counted"),
        (Ends::LostLease, "released"),
        (Ends::Drop(OnCancel::Release), "released"),
        (Ends::Drop(OnCancel::Unknown), "completed unknown"),
    ] {
        let events = Events::default();
        fixture = fixture.with(|engine| engine.observer(events.clone()));
        let told = Arc::new(Mutex::new(None));
        let holds = Holds {
            events: events.clone(),
            store: fixture.store.clone(),
            before: stored(&fixture.store),
            told: Arc::clone(&told),
        };
        let on_cancel = match ends {
            Ends::Drop(on_cancel) => on_cancel,
            _ => OnCancel::Release,
        };
        let call = fixture.engine.operation("pay").key(&format!("{ends:?}"));
        let call = call.on_cancel(on_cancel).on_lease_lost(OnLeaseLost::Cancel);
        fixture.fail(StoreOperation::Renew, [Fault::Hangs; 1_000]);
        let mut call = Box::pin(caught(call.run(|_| async move {
            let _holds = holds;
            tokio::task::yield_now().await;
            assert!(ends != Ends::Panic, "out of paper");
            std::future::pending::<Answer>().await
        })));
        while events.count("claimed") == 0 {
            assert!(poll_once(call.as_mut()).await.is_none());
            tokio::task::yield_now().await;
        }
        match ends {
            Ends::Panic => assert!(call.await.is_err()),
            Ends::LostLease => {
                fixture.clock.advance(LEASE_OVER);
                let answer = until(&fixture, call).await.expect("no panic");
                assert_running(&refusal(answer));
            }
            Ends::Drop(_) => drop(call),
        }
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).take();
        assert_eq!(told, Some(0), "{ends:?}");
        if matches!(ends, Ends::Drop(_)) {
            // The engine's thread sends it.
            events.wait_for(event, 1).await;
        }
        assert_eq!(events.count(event), 1, "{ends:?}");
        fixture.store.heal();
    }
}

async fn a_release_on_drop_that_is_lost_is_sent_again(fixture: Fixture) {
    let lost = [Fault::Lost, Fault::ReplyLost, Fault::Lost];
    fixture.fail(StoreOperation::Release, lost);
    let call = fixture.pay().on_cancel(OnCancel::Release);
    Body::start(call, receipt(7)).await.drop_caller().await;
    comes_to_rest(&fixture).await;
    assert_eq!(fixture.count(StoreOperation::Release), 4);
    assert_eq!(stands(&fixture).await, (EntryState::Released, 0));
}

async fn a_hold_sends_nothing_to_the_store(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(7)).await;
    let told = fixture.store.log().len();
    body.drop_caller().await;
    comes_to_rest(&fixture).await;
    assert_eq!(fixture.store.log().len(), told);
    assert_eq!(fixture.events.count("dropped"), 1);
    assert!(assert_running(&refused_far(&fixture).await) > Duration::from_secs(20));
}

/// A finished body is neither lost nor released when its caller leaves.
async fn an_ending_is_sent_to_its_end_although_its_caller_has_gone(mut fixture: Fixture) {
    use StoreOperation::{Complete, Release};
    let value = EntryState::Answered(idem_runtime::store::OutcomeKind::Value);
    let lost = [Fault::Hangs, Fault::Lost, Fault::ReplyLost, Fault::Lost];
    let (paid, failed) = (receipt(7), Err(PayError::Down));
    for (operation, faults, ends, state) in [
        (Complete, &lost[..], &paid, (value, 1)),
        (Release, &[Fault::Hangs], &failed, (EntryState::Released, 0)),
    ] {
        let _row = Row::new(&fixture, (operation, faults));
        let (before, released) = (fixture.count(operation), fixture.count(Release));
        fixture.fail(operation, faults.iter().copied());
        let call = fixture.pay().on_cancel(OnCancel::Release);
        let mut call = Box::pin(call.run(|_| async { ends.clone() }));
        while fixture.count(operation) == before {
            assert!(poll_once(call.as_mut()).await.is_none());
            tokio::task::yield_now().await;
        }
        drop(call);
        comes_to_rest(&fixture).await;
        assert_eq!(stands(&fixture).await, state);
        if operation == Complete {
            assert_eq!(fixture.count(Release), released, "it has finished");
            assert_eq!(answered(fixture.pay_far()).await, *ends);
        }
        fixture = fixture.with(|engine| engine);
    }
    assert_eq!(fixture.events.count("dropped"), 0);
}
