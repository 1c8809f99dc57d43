//! Which leases are renewed, when, and for how long; take-over, and the outcome of an overtaken call.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use idem_runtime::claim::Completion;
use idem_runtime::clock::ManualClock;
use idem_runtime::store::RecordKey;
use idem_runtime::store::author::{CompleteReply, Header, RenewReply, StoreFuture};
use idem_runtime::testing::Forward;
use idem_runtime::{Observer, observe::Event};
use idem_tests::events::Events;

use crate::prelude::*;
use crate::rows::Row;
use crate::steps::charged;

on_every_store! {
    renewing_stops_when_the_body_ends_or_its_caller_leaves,
    an_overtaken_call_does_not_wait_for_ever,
    the_answer_of_an_overtaken_call_that_gave_up_saves_a_third_run, a_lost_record_is_written_again,
    a_renewal_without_reply_is_tried_again, claims_of_one_moment_are_all_renewed,
    a_renewal_that_outlives_its_body_is_the_last_one,
    a_renewal_that_outlives_its_claim_leaves_the_key_free,
    a_step_that_outlives_the_answer_leaves_its_key_free,
    a_body_that_starts_because_nothing_landed_has_a_whole_lease,
    an_observer_that_panics_costs_no_answer_and_no_lease,
}

const LEASE: Duration = Duration::from_secs(30);

/// The renewals of a second body show that the engine's thread ran.
async fn renewing_stops_when_the_body_ends_or_its_caller_leaves(fixture: Fixture) {
    for leaves in [false, true] {
        let _row = Row::new(&fixture, ("its caller leaves", leaves));
        let before = fixture.events.count("renewed");
        let body = Body::start(fixture.pay(), receipt(1)).await;
        renewed(&fixture, THIRD, before + 1).await;
        if leaves {
            body.drop_caller().await;
        } else {
            body.end().await.unwrap();
        }
        let other = fixture.engine.operation("other").key(&1);
        let other = Body::start(other, receipt(1)).await;
        renewed(&fixture, THIRD, before + 2).await;
        other.end().await.unwrap();
        assert_eq!(fixture.events.count("renewed"), before + 2, "one for each");
    }
    assert_eq!(fixture.events.count("lease lost"), 0);
}

async fn an_overtaken_call_does_not_wait_for_ever(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, fixture.pay(), receipt(1)).await;
    first.let_end();
    let mut waited = Duration::ZERO;
    while waited < Duration::from_secs(5) {
        fixture.clock.sleeper_within(Duration::from_secs(1)).await;
        let step = fixture.clock.next_wake().expect("it sleeps");
        waited += step;
        fixture.clock.advance(step);
    }
    assert_eq!(waited, Duration::from_secs(5), "to the moment");
    assert_running(&refusal(first.join().await));
    assert_eq!(second.end().await, receipt(2));
}

async fn the_answer_of_an_overtaken_call_that_gave_up_saves_a_third_run(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.on_running(OnRunning::Reject));
    let (first, second) = overtaken(&fixture, fixture.pay(), receipt(1)).await;
    assert_running(&refusal(first.end().await));
    second.drop_caller().await;
    fixture.pass_in_store(LEASE);
    let late = fixture.events.wait_for("completed value late", 1);
    until(&fixture, late).await;
    assert_eq!(answered(fixture.pay()).await, receipt(1), "no third run");
}

async fn a_lost_record_is_written_again(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(1)).await;
    // Longer than any record is kept: the store has forgotten the claim.
    fixture.pass_in_store(Duration::from_hours(25));
    wakes(&fixture, Duration::from_secs(10)).await;
    fixture.events.wait_for("renewed", 1).await;
    assert_running(&refused(&fixture).await);
    assert_eq!(body.end().await, receipt(1));
}

async fn a_renewal_without_reply_is_tried_again(fixture: Fixture) {
    let lost = [Fault::Lost, Fault::ReplyLost, Fault::ReplyHangs];
    fixture.fail(StoreOperation::Renew, lost);
    let claim = claimed(fixture.pay()).await;
    for (failures, pause) in [(1, 10_000), (2, 2_500)] {
        wakes(&fixture, Duration::from_millis(pause)).await;
        fixture.events.wait_for("renewal failed", failures).await;
    }
    wakes(&fixture, Duration::from_millis(2_500)).await;
    sent(&fixture, StoreOperation::Renew, 3).await;
    wakes(&fixture, THIRD).await;
    fixture.events.wait_for("renewed", 1).await;
    assert_eq!(fixture.events.count("renewal failed"), 3);
    drop(claim);
    assert_running(&refused(&fixture).await);
}

/// Lets a third of the lease pass in both places.
async fn third(fixture: &Fixture) {
    fixture.clock.sleeper_within(THIRD).await;
    fixture.pass_in_store(THIRD);
    fixture.clock.advance(THIRD);
}

async fn claims_of_one_moment_are_all_renewed(fixture: Fixture) {
    let mut claims = Vec::new();
    for key in 0..10 {
        claims.push(claimed(fixture.engine.operation("pay").key(&key)).await);
    }
    for thirds in 1..=3 {
        third(&fixture).await;
        let renewed = fixture.events.wait_for("renewed", 10 * thirds);
        patiently("all are renewed", renewed).await;
    }
    for claim in claims {
        assert_eq!(claim.context().lease_remaining(), LEASE);
        claim.release().await;
    }
}

async fn a_renewal_that_outlives_its_body_is_the_last_one(fixture: Fixture) {
    fixture.fail(StoreOperation::Renew, [Fault::ReplyHeld]);
    let body = Body::start(fixture.pay(), receipt(1)).await;
    third(&fixture).await;
    sent(&fixture, StoreOperation::Renew, 1).await;
    let other = Body::start(fixture.engine.operation("other").key(&1), receipt(2)).await;
    body.drop_caller().await;
    fixture.store.deliver();
    fixture.events.wait_for("renewed", 1).await;
    assert_running(&refused_far(&fixture).await);
    for renewed in 2..=4 {
        third(&fixture).await;
        fixture.events.wait_for("renewed", renewed).await;
    }
    others().await;
    assert_eq!(fixture.count(StoreOperation::Renew), 4, "of the other one");
    let again = fixture.pay_far().run(|_| async { receipt(3) });
    assert_eq!(until(&fixture, again).await, receipt(3));
    assert_eq!(other.end().await, receipt(2));
}

/// A renewal that outlives its claim finds no record.
///
/// The short life of the answer has passed, or the server has lost the claim before its release.
async fn a_renewal_that_outlives_its_claim_leaves_the_key_free(fixture: Fixture) {
    let (answered, overtaken, lost) = ("answered", "overtaken", "lost");
    for (has_steps, end) in [
        (false, answered),
        (true, answered),
        (false, overtaken),
        (false, lost),
    ] {
        let _row = Row::new(&fixture, (has_steps, end));
        let claim = claimed(fixture.pay()).await;
        let renewal = if has_steps {
            let step = claim.context().step("charge", async |_| receipt(1));
            assert_eq!(step.await, receipt(1));
            StoreOperation::Append
        } else {
            StoreOperation::Renew
        };
        fixture.fail(renewal, [Fault::Held]);
        let renewals = fixture.count(renewal);
        third(&fixture).await;
        sent(&fixture, renewal, renewals + 1).await;
        if end == overtaken {
            fixture.pass_in_store(LEASE_OVER);
            let second = claimed(fixture.pay_far()).await;
            let completed = second.complete_for(Receipt { run: 2 }, Duration::ZERO);
            completed.await.unwrap();
        }
        if end == lost {
            fixture.pass_in_store(Duration::from_hours(25));
            claim.release().await;
        } else {
            let completed = claim.complete_for(Receipt { run: 1 }, Duration::ZERO);
            let is_adopted = matches!(completed.await.unwrap(), Completion::Adopted(_));
            assert_eq!(is_adopted, end == overtaken);
            fixture.pass_in_store(Duration::from_secs(1));
        }
        let released = fixture.count(StoreOperation::Release);
        fixture.store.deliver();
        sent(&fixture, StoreOperation::Release, released + 1).await;
        let charge = Runs::default();
        let again = charged(fixture.pay_far(), &charge, receipt(2));
        assert_eq!(until(&fixture, again).await, receipt(2));
        assert_eq!(charge.count(), 1, "nothing remains of the first call");
        assert_eq!(stands(&fixture).await.1, 1, "nor is it counted");
    }
}

/// A task's step outlives the answer: its end, or its record's request.
async fn a_step_that_outlives_the_answer_leaves_its_key_free(fixture: Fixture) {
    for is_sent in [false, true] {
        let _row = Row::new(&fixture, ("it is sent before", is_sent));
        let claim = claimed(fixture.pay()).await;
        let [begun, go_on] = [(), ()].map(|()| Arc::new(Semaphore::new(0)));
        let (context, starts, through) = (claim.context(), Arc::clone(&begun), Arc::clone(&go_on));
        let left_over = tokio::spawn(async move {
            let part = async |_| {
                starts.add_permits(1);
                through.acquire().await.unwrap().forget();
                receipt(1)
            };
            context.step("charge", part).await
        });
        begun.acquire().await.unwrap().forget();
        let appended = fixture.count(StoreOperation::Append);
        if is_sent {
            fixture.fail(StoreOperation::Append, [Fault::Held]);
            go_on.add_permits(1);
            sent(&fixture, StoreOperation::Append, appended + 1).await;
        }
        let completed = claim.complete_for(Receipt { run: 1 }, Duration::ZERO);
        completed.await.unwrap();
        fixture.pass_in_store(Duration::from_secs(1));
        if is_sent {
            fixture.store.deliver();
        } else {
            go_on.add_permits(1);
        }
        assert_running(&refusal(left_over.await.unwrap()));
        let charge = Runs::default();
        let again = charged(fixture.pay_far(), &charge, receipt(2));
        assert_eq!(until(&fixture, again).await, receipt(2));
        assert_eq!(charge.count(), 1, "nothing remains of the first call");
        assert_eq!(stands(&fixture).await.1, 1, "nor is it counted");
    }
}

async fn a_body_that_starts_because_nothing_landed_has_a_whole_lease(fixture: Fixture) {
    crashed(&fixture, fixture.pay()).await;
    let clock = fixture.clock.clone();
    let hook = |_| async move {
        clock.advance(Duration::from_secs(4));
        Reconciled::<Receipt>::NotLanded
    };
    let call = fixture.pay().run_reconciled(hook, |cx| async move {
        assert_eq!(cx.lease_remaining(), LEASE);
        receipt(2)
    });
    assert_eq!(call.await, receipt(2));
    assert_eq!(answered(fixture.pay_far()).await, receipt(2));
    assert!(fixture.clock.now() < LEASE_OVER);
}

/// Panics at every event.
#[derive(Clone, Debug)]
struct Fragile;

impl Observer for Fragile {
    fn observe(&self, _: &Event<'_>) {
        panic!("a bug in somebody's observer");
    }
}

async fn an_observer_that_panics_costs_no_answer_and_no_lease(fixture: Fixture) {
    let events = fixture.events.clone();
    let fixture = fixture.with(|engine| engine.observer((Fragile, events.clone())));
    let runs = Runs::default();
    let answer = fixture.pay().run(|_| async {
        for renewals in 1..=3 {
            wakes(&fixture, THIRD).await;
            fixture.events.wait_for("renewed", renewals).await;
        }
        receipt(runs.start())
    });
    assert_eq!(answer.await, receipt(1));
    assert_eq!(fixture.events.count("completed"), 1);
    assert_eq!(paid(fixture.pay(), &runs).await, receipt(1));
}

/// Its first renewal panics; its first completion gets no reply, and its second panics.
#[derive(Debug, Default)]
struct PanicsOnce {
    store: MemoryStore,
    renewed: AtomicBool,
    completions: AtomicUsize,
}

impl Forward for PanicsOnce {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        let again = self.renewed.swap(true, Ordering::SeqCst);
        assert!(again, "a bug in a store");
        self.store.renew(key, claim)
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        match self.completions.fetch_add(1, Ordering::SeqCst) {
            0 => StoreFuture::pending(std::future::pending()),
            1 => panic!("a bug in a store"),
            _ => self.store.complete(key, claim, record),
        }
    }
}

fn panics_once() -> (Engine, ManualClock, Events) {
    let (clock, events) = (ManualClock::new(), Events::default());
    let engine = Engine::builder(PanicsOnce::default()).clock(clock.clone());
    let engine = engine.observer(events.clone()).build().unwrap();
    (engine, clock, events)
}

/// Its caller has got the answer: a second body would contradict it.
#[tokio::test]
async fn an_answer_whose_storing_panics_in_the_background_is_stored_all_the_same() {
    let (engine, clock, events) = panics_once();
    let call = tokio::spawn(
        engine
            .operation("pay")
            .key(&7)
            .run(|_| async { receipt(1) }),
    );
    // `complete_deadline`, then the pause after the panic.
    let pauses = [Duration::from_secs(2), Duration::from_millis(250)];
    for pause in pauses {
        patiently("it waits", clock.sleeper_within(pause)).await;
        clock.advance(pause);
    }
    assert_eq!(call.await.unwrap(), receipt(1));
    patiently("it is stored", events.wait_for("completed value", 1)).await;
    assert_eq!(answered(engine.operation("pay").key(&7)).await, receipt(1));
}

#[tokio::test]
async fn a_lease_whose_renewal_panics_is_renewed_again() {
    let (engine, clock, events) = panics_once();
    let claim = claimed(engine.operation("pay").key(&7)).await;
    for (pause, event) in [
        (THIRD, "renewal failed: the store has panicked"),
        (THIRD / 4, "renewed"),
    ] {
        clock.sleeper_within(pause).await;
        clock.advance(pause);
        patiently(event, events.wait_for(event, 1)).await;
    }
    claim.release().await;
}
