//! Reconciling before a body runs again: when the hook runs, and the meaning of each of its verdicts.

use idem_runtime::IntoReconciled;

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    the_hook_is_asked_unless_no_earlier_body_can_have_had_its_effect,
    an_undecided_hook_leaves_the_key_unknown, a_hook_that_takes_too_long_leaves_it_unknown,
    followers_of_an_undecided_hook_share_its_verdict,
    a_call_without_a_hook_waits_for_one_that_is_asking,
    a_caller_that_is_gone_during_the_hook_leaves_it_unknown,
    the_hook_sees_the_call_and_the_attempts_before_it,
}

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

pub(crate) type Says = Reconciled<Receipt>;

/// The effect happened; its receipt has number 7.
pub(crate) const LANDED: Says = Reconciled::Landed(Receipt { run: 7 });

async fn reset(fixture: &Fixture) {
    entry(fixture).await.reset().await.unwrap();
}

/// A body that may have had its effect makes calls reconcile; any other record does not.
async fn the_hook_is_asked_unless_no_earlier_body_can_have_had_its_effect(fixture: Fixture) {
    for (row, asked) in [
        ("a first call", 0),
        ("a system error", 0),
        ("a reset", 0),
        ("a lapsed claim", 1),
        ("an unknown outcome", 1),
        ("a panic", 1),
        ("a system error that counts", 1),
    ] {
        let _row = Row::new(&fixture, row);
        match row {
            "a first call" => {}
            "a system error" => down(fixture.pay()).await,
            "a reset" => {
                timed_out(fixture.pay()).await;
                reset(&fixture).await;
            }
            "a lapsed claim" => crashed(&fixture, fixture.pay()).await,
            "an unknown outcome" => timed_out(fixture.pay()).await,
            "a panic" => panicked(fixture.pay()).await,
            _ => down(fixture.pay().count_errors(true)).await,
        }
        let counts = Counts::default();
        // The hook's effect, or that of the body, which all later calls replay.
        let effect = receipt(if asked == 1 { 7 } else { 1 });
        let first = reconciled(fixture.pay_far(), LANDED, &counts).await;
        let second = reconciled(fixture.pay(), Says::NotLanded, &counts).await;
        let without_a_hook = answered(fixture.pay_far()).await;
        assert_each(vec![first, second, without_a_hook], &effect);
        assert_eq!(counts.both(), (asked, 1 - asked));
    }
    assert_eq!(fixture.events.count("reconciling after 1"), 4);
    assert_eq!(fixture.events.count("landed"), 4);
}

/// The outcome stays unknown for this reason; the body does not run.
async fn stays_unknown<H, R>(fixture: &Fixture, why: &str, hook: impl FnOnce() -> H)
where
    H: Future<Output = R>,
    R: IntoReconciled<Receipt>,
{
    let _row = Row::new(fixture, why);
    timed_out(fixture.pay()).await;
    let before = fixture.events.count(why);
    let call = fixture
        .pay()
        .run_reconciled(|_| hook(), |_| async { never() });
    assert_unknown(&refusal(call.await));
    assert_eq!(fixture.events.count(why), before + 1);
    assert_eq!(stands(fixture).await, (EntryState::Unknown, 1));
    assert_unknown(&refused_far(fixture).await);
}

async fn an_undecided_hook_leaves_the_key_unknown(fixture: Fixture) {
    let cannot_say = "undecided: the hook cannot say";
    stays_unknown(&fixture, cannot_say, async || Says::Unknown).await;
    let fails = async || Err::<Says, _>(PayError::Down);
    stays_unknown(&fixture, cannot_say, fails).await;
    let panicked = "undecided: the hook panicked";
    let panics = async || std::panic::panic_any("no ink") as Says;
    stays_unknown(&fixture, panicked, panics).await;
    // Before it begins.
    let panics = || -> std::future::Ready<Says> { std::panic::panic_any("no ink") };
    stays_unknown(&fixture, panicked, panics).await;
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

/// A call whose hook returns its verdict at the test's permission.
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

/// The provider was asked a moment ago: ten duplicates of an unknown key do not ask it again.
async fn followers_of_an_undecided_hook_share_its_verdict(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let asking = Asking::saying(&fixture, fixture.pay(), Says::Unknown).await;
    let counts = Counts::default();
    let duplicates: Vec<_> = (0..10)
        .map(|_| {
            let (call, counts) = (fixture.pay(), counts.clone());
            tokio::spawn(async move { reconciled(call, LANDED, &counts).await })
        })
        .collect();
    others().await;
    assert_unknown(&refusal(asking.end().await));
    for duplicate in duplicates {
        let answer = until(&fixture, duplicate).await.unwrap();
        assert_unknown(&refusal(answer));
    }
    assert_eq!(counts.both(), (0, 0));
    let later = reconciled(fixture.pay(), LANDED, &counts).await;
    assert_eq!((later, counts.both()), (receipt(7), (1, 0)));
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

/// A caller that is dropped tells the store at once; of a process that died, the lease lapses.
async fn a_caller_that_is_gone_during_the_hook_leaves_it_unknown(fixture: Fixture) {
    for dies in [false, true] {
        let _row = Row::new(&fixture, ("the process dies", dies));
        crashed(&fixture, fixture.pay()).await;
        let asking = Asking::start(&fixture, fixture.pay_far()).await;
        assert_running(&refused(&fixture).await);
        if dies {
            fixture.fail(StoreOperation::Release, [Fault::Refused]);
        }
        asking.task.abort();
        asking.task.await.unwrap_err();
        if dies {
            fixture.pass_in_store(LEASE_OVER);
        } else {
            comes_to_stand(&fixture, |state| state == EntryState::Unknown).await;
        }
        assert_unknown(&refused(&fixture).await);
        assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
        let counts = Counts::default();
        let next = reconciled(fixture.pay(), LANDED, &counts).await;
        assert_eq!((next, counts.both()), (receipt(7), (1, 0)));
    }
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
