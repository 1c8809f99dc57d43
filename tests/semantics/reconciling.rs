//! Reconciling before a body runs again: when the hook runs, and the meaning of each of its verdicts.

use idem_runtime::IntoReconciled;

use crate::prelude::*;

on_every_store![
    the_hook_is_not_asked_on_a_first_call,
    the_hook_is_not_asked_on_a_replay,
    the_hook_is_not_asked_after_a_system_error,
    the_hook_is_not_asked_after_a_reset,
    the_hook_is_asked_before_a_lapsed_key_runs_again,
    the_hook_runs_before_an_unknown_key_runs_again,
    the_hook_is_asked_after_a_panic,
    the_hook_is_asked_after_a_system_error_that_counts,
    a_landed_effect_is_replayed_to_all_callers,
    an_effect_that_did_not_land_runs_once_and_counts,
    an_undecided_hook_leaves_the_key_unknown,
    a_hook_that_fails_leaves_it_unknown,
    a_hook_that_panics_leaves_it_unknown,
    a_hook_that_panics_before_it_begins_leaves_it_unknown,
    a_hook_that_takes_too_long_leaves_it_unknown,
    an_undecided_key_is_asked_about_again,
    one_hook_at_a_time_and_the_others_get_its_answer,
    a_follower_of_an_undecided_hook_shares_its_verdict,
    a_call_without_a_hook_waits_for_one_that_is_asking,
    a_caller_dropped_during_the_hook_leaves_it_unknown_at_once,
    a_hook_whose_process_dies_leaves_it_unknown,
    the_hook_sees_the_call_and_the_attempts_before_it,
    a_body_after_the_hook_may_fail_like_any_other,
    duplicates_share_one_undecided_hook,
];

/// How often a hook and a body ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) asked: Runs,
    pub(crate) runs: Runs,
}

impl Counts {
    pub(crate) fn both(&self) -> (u32, u32) {
        (self.asked.count(), self.runs.count())
    }
}

/// A call whose hook returns this, and whose body succeeds.
pub(crate) async fn reconciled<R: IntoReconciled<Receipt>>(
    call: Pay,
    says: R,
    counts: &Counts,
) -> Answer {
    let hook = |_| async {
        let _ = counts.asked.start();
        says
    };
    let body = |_| async { receipt(counts.runs.start()) };
    call.run_reconciled(hook, body).await
}

/// The hook is asked, and its effect is the answer.
async fn lands(call: Pay) {
    let counts = Counts::default();
    assert_eq!(reconciled(call, LANDED, &counts).await, receipt(7));
    assert_eq!(counts.both(), (1, 0));
}

/// The hook is not asked, and the body runs.
async fn runs_unasked(call: Pay) {
    let counts = Counts::default();
    assert_eq!(reconciled(call, LANDED, &counts).await, receipt(1));
    assert_eq!(counts.both(), (0, 1));
}

/// The verdict of a hook.
pub(crate) type Says = Reconciled<Receipt>;

/// The effect happened; its receipt has number 7.
pub(crate) const LANDED: Says = Reconciled::Landed(Receipt { run: 7 });

async fn the_hook_is_not_asked_on_a_first_call(fixture: Fixture) {
    runs_unasked(fixture.pay()).await;
}

async fn the_hook_is_not_asked_on_a_replay(fixture: Fixture) {
    let counts = Counts::default();
    assert_eq!(paid(fixture.pay(), &counts.runs).await, receipt(1));
    assert_eq!(reconciled(fixture.pay(), LANDED, &counts).await, receipt(1));
    assert_eq!(counts.both(), (0, 1));
}

async fn the_hook_is_not_asked_after_a_system_error(fixture: Fixture) {
    down(fixture.pay()).await;
    runs_unasked(fixture.pay()).await;
}

async fn the_hook_is_not_asked_after_a_reset(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.reset().await.unwrap();
    runs_unasked(fixture.pay()).await;
}

async fn the_hook_is_asked_before_a_lapsed_key_runs_again(fixture: Fixture) {
    let counts = Counts::default();
    crashed(&fixture, fixture.pay()).await;
    let again = reconciled(fixture.pay_far(), LANDED, &counts);
    assert_eq!(again.await, receipt(7));
    assert_eq!(counts.both(), (1, 0));
    assert_eq!(fixture.events.count("reconciling after 1"), 1);
    assert_eq!(fixture.events.count("landed"), 1);
}

async fn the_hook_runs_before_an_unknown_key_runs_again(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    lands(fixture.pay()).await;
}

async fn the_hook_is_asked_after_a_panic(fixture: Fixture) {
    panicked(fixture.pay()).await;
    lands(fixture.pay()).await;
}

async fn the_hook_is_asked_after_a_system_error_that_counts(fixture: Fixture) {
    let call = fixture.pay().count_errors(true);
    down(call).await;
    lands(fixture.pay()).await;
}

async fn a_landed_effect_is_replayed_to_all_callers(fixture: Fixture) {
    let counts = Counts::default();
    timed_out(fixture.pay()).await;
    assert_eq!(reconciled(fixture.pay(), LANDED, &counts).await, receipt(7));
    assert_eq!(
        answered(fixture.pay_far()).await,
        receipt(7),
        "without a hook"
    );
    let again = reconciled(fixture.pay_far(), Reconciled::NotLanded, &counts);
    assert_eq!(again.await, receipt(7));
    assert_eq!(counts.both(), (1, 0));
}

async fn an_effect_that_did_not_land_runs_once_and_counts(fixture: Fixture) {
    let counts = Counts::default();
    timed_out(fixture.pay()).await;
    let hook = |_| async { Reconciled::<Receipt>::NotLanded };
    let body = |cx: Context| async move {
        assert_eq!(cx.attempt(), 2, "the one before counts");
        receipt(counts.runs.start())
    };
    assert_eq!(fixture.pay().run_reconciled(hook, body).await, receipt(1));
    assert_eq!(answered(fixture.pay_far()).await, receipt(1));
    assert_eq!(stands(&fixture).await.1, 2);
    let told = [
        "reconciling after 1",
        "not landed",
        "claimed 2",
        "completed value",
    ];
    assert_eq!(fixture.events.all()[2..6], told);
}

/// The outcome stays unknown, the body does not run, and this was the reason.
async fn stays_unknown<R: IntoReconciled<Receipt>>(fixture: &Fixture, says: R, why: &str) {
    let counts = Counts::default();
    timed_out(fixture.pay()).await;
    let error = refusal(reconciled(fixture.pay(), says, &counts).await);
    assert_unknown(&error);
    assert_eq!(counts.both(), (1, 0));
    assert_eq!(fixture.events.count(&format!("undecided: {why}")), 1);
    assert_eq!(stands(fixture).await, (EntryState::Unknown, 1));
    assert_unknown(&refused_far(fixture).await);
}

async fn an_undecided_hook_leaves_the_key_unknown(fixture: Fixture) {
    stays_unknown(&fixture, Says::Unknown, "the hook cannot say").await;
}

async fn a_hook_that_fails_leaves_it_unknown(fixture: Fixture) {
    let failure: Result<Says, PayError> = Err(PayError::Down);
    stays_unknown(&fixture, failure, "the hook cannot say").await;
}

async fn its_panic_leaves_it_unknown(fixture: &Fixture, call: impl Future<Output = Answer>) {
    assert_unknown(&refusal(call.await));
    assert_eq!(fixture.events.count("undecided: the hook panicked"), 1);
    assert_eq!(stands(fixture).await, (EntryState::Unknown, 1));
}

async fn a_hook_that_panics_leaves_it_unknown(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let hook = |_| async { std::panic::panic_any("no ink") as Says };
    let call = (fixture.pay()).run_reconciled(hook, |_| async { never() });
    its_panic_leaves_it_unknown(&fixture, call).await;
}

async fn a_hook_that_panics_before_it_begins_leaves_it_unknown(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let hook = |_| -> std::future::Ready<Says> { std::panic::panic_any("no ink") };
    let call = (fixture.pay()).run_reconciled(hook, |_| async { never() });
    its_panic_leaves_it_unknown(&fixture, call).await;
}

async fn a_hook_that_takes_too_long_leaves_it_unknown(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let asking = Asking::start(&fixture, fixture.pay()).await;
    fixture.clock.advance(Duration::from_millis(9_999));
    others().await;
    assert!(!asking.task.is_finished());
    fixture.clock.advance(Duration::from_millis(1));
    assert_unknown(&refusal(asking.task.await.unwrap()));
    let why = "undecided: the hook took longer than 10 s";
    assert_eq!(fixture.events.count(why), 1);
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
}

async fn an_undecided_key_is_asked_about_again(fixture: Fixture) {
    let counts = Counts::default();
    timed_out(fixture.pay()).await;
    for asked in 1..=9 {
        let error = refusal(reconciled(fixture.pay(), Says::Unknown, &counts).await);
        assert_unknown(&error);
        assert_eq!(counts.both(), (asked, 0), "asking uses no attempts up");
    }
    assert_eq!(reconciled(fixture.pay(), LANDED, &counts).await, receipt(7));
}

/// A call whose hook returns its verdict when the test opens the gate.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) task: JoinHandle<Answer>,
}

impl Asking {
    /// A hook that will return that the effect landed.
    pub(crate) async fn start(fixture: &Fixture, call: Pay) -> Self {
        Self::saying(fixture, call, LANDED).await
    }

    /// Waits until the hook runs. The body succeeds as run 8.
    pub(crate) async fn saying(fixture: &Fixture, call: Pay, says: Says) -> Self {
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (end, start) = (Arc::clone(&gate), Arc::clone(&begun));
        let hook = move |_| async move {
            start.add_permits(1);
            end.acquire().await.unwrap().forget();
            says
        };
        let task = tokio::spawn(call.run_reconciled(hook, |_| async { receipt(8) }));
        until(fixture, begun.acquire()).await.unwrap().forget();
        Self { gate, task }
    }

    pub(crate) async fn end(self) -> Answer {
        self.gate.add_permits(1);
        self.task.await.unwrap()
    }
}

async fn one_hook_at_a_time_and_the_others_get_its_answer(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let asking = Asking::start(&fixture, fixture.pay()).await;
    let (near, far) = (Counts::default(), Counts::default());
    let second = reconciled(fixture.pay(), Reconciled::NotLanded, &near);
    let third = reconciled(fixture.pay_far(), Reconciled::NotLanded, &far);
    let rest = Box::pin(async { tokio::join!(second, third) });
    let (first, (second, third)) =
        until(&fixture, async { tokio::join!(asking.end(), rest) }).await;
    assert_eq!([first, second, third], [receipt(7), receipt(7), receipt(7)]);
    assert_eq!((near.both(), far.both()), ((0, 0), (0, 0)));
}

async fn a_follower_of_an_undecided_hook_shares_its_verdict(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let asking = Asking::saying(&fixture, fixture.pay(), Says::Unknown).await;
    let counts = Counts::default();
    let second = reconciled(fixture.pay(), LANDED, &counts);
    let (second, first) = until(&fixture, async { tokio::join!(second, asking.end()) }).await;
    assert_unknown(&refusal(first));
    assert_unknown(&refusal(second));
    assert_eq!(counts.both(), (0, 0), "the provider was asked a moment ago");
    let third = reconciled(fixture.pay(), LANDED, &counts).await;
    assert_eq!((third, counts.both()), (receipt(7), (1, 0)));
}

async fn a_call_without_a_hook_waits_for_one_that_is_asking(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let asking = Asking::start(&fixture, fixture.pay()).await;
    assert_running(&refused_far(&fixture).await);
    let reject = fixture.pay().on_running(OnRunning::Reject);
    assert_running(&refusal(answered(reject).await));
    let waits = answered(fixture.pay());
    let (waits, first) = until(&fixture, async { tokio::join!(waits, asking.end()) }).await;
    assert_eq!((waits, first), (receipt(7), receipt(7)));
}

async fn a_caller_dropped_during_the_hook_leaves_it_unknown_at_once(fixture: Fixture) {
    crashed(&fixture, fixture.pay()).await;
    let asking = Asking::start(&fixture, fixture.pay()).await;
    asking.task.abort();
    asking.task.await.unwrap_err();
    comes_to_rest(&fixture).await;
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
    assert_unknown(&refused_far(&fixture).await);
}

async fn a_hook_whose_process_dies_leaves_it_unknown(fixture: Fixture) {
    crashed(&fixture, fixture.pay()).await;
    // It never reports again, not even at its end.
    let dead = Asking::start(&fixture, fixture.pay_far()).await;
    assert_running(&refused(&fixture).await);
    fixture.fail(StoreOperation::Release, [Fault::Refused]);
    dead.task.abort();
    dead.task.await.unwrap_err();
    fixture.pass_in_store(LEASE_OVER);
    assert_unknown(&refused(&fixture).await);
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
    lands(fixture.pay()).await;
}

async fn refused(fixture: &Fixture) -> Error {
    let call = fixture.pay().on_running(OnRunning::Reject);
    refusal(answered(call).await)
}

async fn the_hook_sees_the_call_and_the_attempts_before_it(fixture: Fixture) {
    crashed(&fixture, fixture.pay()).await;
    crashed(&fixture, fixture.pay()).await;
    let body = Body::start(fixture.engine.operation("pay").key(&8), receipt(1)).await;
    body.end().await.unwrap();
    let key = *fixture.key().digest();
    let hook = move |cx: Context| async move {
        assert_eq!((cx.operation().as_str(), *cx.key()), ("pay", key));
        assert_eq!(cx.attempt(), 2);
        let (before, label) = (cx.fence().await.unwrap(), cx.derive_key("bank"));
        assert_eq!(idem_runtime::context().fence().await, Ok(before));
        assert!(cx.lease_remaining() > Duration::from_secs(29));
        assert_eq!(label, idem_runtime::context().derive_key("bank"));
        Says::NotLanded
    };
    let answer = fixture
        .pay()
        .run_reconciled(hook, |cx| async move { receipt(cx.attempt().into()) });
    assert_eq!(answer.await, receipt(3));
}

async fn a_body_after_the_hook_may_fail_like_any_other(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let call = |answer: Answer| {
        let hook = |_| async { Says::NotLanded };
        fixture.pay().run_reconciled(hook, |_| async { answer })
    };
    assert_eq!(call(Err(PayError::Down)).await, Err(PayError::Down));
    assert_eq!(stands(&fixture).await, (EntryState::Released, 1));
    assert_eq!(call(Err(PayError::TimedOut)).await, Err(PayError::TimedOut));
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 2));
    let declined: Answer = Err(PayError::Declined { run: 3 });
    assert_eq!(call(declined.clone()).await, declined);
    assert_eq!(answered(fixture.pay_far()).await, declined);
}

/// Ten duplicates of an unknown key query the provider once, not ten times.
async fn duplicates_share_one_undecided_hook(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let (gate, hooks) = (Arc::new(Semaphore::new(0)), Runs::default());
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let (gate, hooks) = (Arc::clone(&gate), hooks.clone());
            let hook = |_| async move {
                let _ = hooks.start();
                gate.acquire().await.unwrap().forget();
                Reconciled::<Receipt>::Unknown
            };
            tokio::spawn(fixture.pay().run_reconciled(hook, |_| async { receipt(1) }))
        })
        .collect();
    fixture.events.wait_for("reconciling", 1).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(10);
    for call in calls {
        assert_unknown(&refusal(call.await.unwrap()));
    }
    assert_eq!(hooks.count(), 1, "they all waited for the same question");
}
