//! A lost lease: which tasks are notified, when, and the fate of the body and its answer.

use std::time::Instant;

use crate::prelude::*;

on_every_store! {
    a_body_is_notified_when_its_renewal_is_refused, a_body_is_notified_when_its_lease_expires,
    a_body_is_notified_at_max_run, the_remaining_lease_is_counted_from_the_last_renewal,
    the_deadline_is_the_end_of_renewing, a_lease_is_not_reported_lost_after_its_body_has_ended,
    a_local_follower_gets_the_winners_answer_at_once,
    a_renewal_by_hand_that_is_refused_ends_the_lease,
}

/// A body that waits until its lease is lost, and reports it.
struct Watching {
    context: Context,
    told: JoinHandle<()>,
    body: Body,
}

impl Watching {
    async fn start(fixture: &Fixture) -> Self {
        let context = Arc::new(Mutex::new(None));
        let (end, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (place, gate, start) = (Arc::clone(&context), Arc::clone(&end), Arc::clone(&begun));
        let task = tokio::spawn(fixture.pay().run(move |cx| async move {
            *place.lock().unwrap() = Some(cx);
            start.add_permits(1);
            gate.acquire().await.unwrap().forget();
            receipt(7)
        }));
        begun.acquire().await.unwrap().forget();
        let context = context.lock().unwrap().take().expect("the body has begun");
        Self {
            told: tokio::spawn(context.lease_lost()),
            context,
            body: Body::of(end, task),
        }
    }

    /// The body does not know of anything.
    async fn knows_nothing(&self) {
        others().await;
        assert!(!self.told.is_finished());
        self.has_its_lease().await;
    }

    async fn has_its_lease(&self) {
        assert!(self.context.lease_remaining() > Duration::ZERO);
        assert!(poll_once(pin!(self.context.lease_lost())).await.is_none());
    }
}

/// Lets a third of the lease pass here: the renewal is due.
pub(crate) async fn third(fixture: &Fixture) {
    wakes(fixture, THIRD).await;
}

/// Another process takes the key over.
async fn taken_over(fixture: &Fixture) {
    fixture.pass_in_store(LEASE_OVER);
    assert_eq!(paid(fixture.pay_far(), &Runs::default()).await, receipt(1));
}

async fn a_body_is_notified_when_its_renewal_is_refused(fixture: Fixture) {
    let watching = Watching::start(&fixture).await;
    let more = [(); 20].map(|()| tokio::spawn(watching.context.lease_lost()));
    taken_over(&fixture).await;
    watching.knows_nothing().await;
    assert_eq!(watching.context.lease_remaining(), Duration::from_secs(30));
    third(&fixture).await;
    watching.told.await.unwrap();
    for told in more {
        told.await.unwrap();
    }
    let why = "lease lost: another attempt";
    fixture.events.wait_for(why, 1).await;
    assert_eq!(watching.context.lease_remaining(), Duration::ZERO);
    let late = poll_once(pin!(watching.context.lease_lost())).await;
    assert!(late.is_some(), "a late wait returns at once");
    // The body goes on, and its caller gets the winner's answer.
    assert_eq!(watching.body.end().await, receipt(1));
    assert_eq!(fixture.events.count("adopted"), 1);
    assert_eq!(answered(fixture.pay()).await, receipt(1));
}

async fn a_body_is_notified_when_its_lease_expires(fixture: Fixture) {
    fixture.fail(StoreOperation::Renew, [Fault::Hangs; 1_000]);
    let watching = Watching::start(&fixture).await;
    fixture.clock.advance(Duration::from_millis(29_999));
    watching.knows_nothing().await;
    fixture.clock.advance(Duration::from_millis(1));
    watching.told.await.unwrap();
    assert_eq!(watching.context.lease_remaining(), Duration::ZERO);
    // No other attempt has run, although one could.
    fixture.pass_in_store(LEASE_OVER);
    assert_eq!(watching.body.end().await, receipt(7));
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
}

async fn a_body_is_notified_at_max_run(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_run(Duration::from_secs(15)));
    let watching = Watching::start(&fixture).await;
    third(&fixture).await;
    fixture.events.wait_for("renewed", 1).await;
    // At that moment, and not when it would have been renewed: with long leases that is much later.
    fixture.clock.advance(Duration::from_millis(4_999));
    watching.knows_nothing().await;
    fixture.clock.advance(Duration::from_millis(1));
    watching.told.await.unwrap();
    let why = "lease lost: the body ran for longer";
    fixture.events.wait_for(why, 1).await;
    assert_eq!(watching.body.end().await, receipt(7));
}

async fn the_remaining_lease_is_counted_from_the_last_renewal(fixture: Fixture) {
    let watching = Watching::start(&fixture).await;
    let remains = || watching.context.lease_remaining();
    assert_eq!(remains(), Duration::from_secs(30));
    fixture.clock.advance(Duration::from_secs(4));
    assert_eq!(remains(), Duration::from_secs(26));
    wakes(&fixture, Duration::from_secs(6)).await;
    fixture.events.wait_for("renewed", 1).await;
    assert_eq!(remains(), Duration::from_secs(30));
    watching.told.abort();
    assert_eq!(watching.body.end().await, receipt(7));
}

async fn the_deadline_is_the_end_of_renewing(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_run(Duration::from_hours(2)));
    let before = Instant::now();
    let watching = Watching::start(&fixture).await;
    let first = watching.context.deadline();
    assert!(first >= before + Duration::from_hours(2));
    fixture.clock.advance(Duration::from_hours(1));
    let second = watching.context.deadline();
    assert!(second < first, "an hour of it is over");
    fixture.clock.advance(Duration::from_hours(3));
    assert!(watching.context.deadline() < second, "it is over");
    watching.told.await.unwrap();
    assert_eq!(watching.body.end().await, receipt(7));
}

async fn a_lease_is_not_reported_lost_after_its_body_has_ended(fixture: Fixture) {
    fixture.fail(StoreOperation::Renew, [Fault::Held]);
    fixture.fail(StoreOperation::Complete, [Fault::ReplyHeld]);
    let Watching { told, body, .. } = Watching::start(&fixture).await;
    third(&fixture).await;
    sent(&fixture, StoreOperation::Renew, 1).await;
    let other = fixture.engine.operation("other").key(&1);
    let other = Body::start(other, receipt(8)).await;
    let answer = tokio::spawn(body.end());
    comes_to_stand(&fixture, |state| matches!(state, EntryState::Answered(_))).await;
    // The renewal was sent first and arrives now, behind the completion.
    fixture.store.deliver();
    told.await.unwrap();
    fixture.store.deliver();
    assert_eq!(answer.await.unwrap(), receipt(7));
    // The engine's thread reported on the first lease before it renewed the second one.
    third(&fixture).await;
    fixture.events.wait_for("renewed", 1).await;
    assert_eq!(fixture.events.count("lease lost"), 0);
    assert_eq!(other.end().await, receipt(8));
}

async fn a_local_follower_gets_the_winners_answer_at_once(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let patient = OnRunning::Wait(Duration::from_mins(5));
    let waiting = tokio::spawn(answered(fixture.pay().on_running(patient)));
    others().await;
    taken_over(&fixture).await;
    assert!(!waiting.is_finished(), "the body is still thought to count");
    third(&fixture).await;
    fixture.events.wait_for("lease lost", 1).await;
    // Twenty seconds of the lease were left; time stands still.
    let answer = patiently("the follower is notified of the lost lease", waiting).await;
    assert_eq!(answer.unwrap(), receipt(1));
    assert_eq!(first.end().await, receipt(1));
}

async fn a_renewal_by_hand_that_is_refused_ends_the_lease(fixture: Fixture) {
    let claim = claimed(fixture.pay()).await;
    let remaining = || claim.context().lease_remaining();
    taken_over(&fixture).await;
    assert_eq!(remaining(), Duration::from_secs(30));
    for _ in 0..2 {
        assert_running(&claim.renew().await.unwrap_err());
        assert_eq!(remaining(), Duration::ZERO);
        assert_eq!(fixture.events.count("lease lost"), 1);
    }
    // Another attempt has answered: this answer would be a second one.
    fixture.fail(StoreOperation::Complete, [Fault::Lost; 10_000]);
    let error = until(&fixture, claim.complete(2)).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unconfirmed);
}
