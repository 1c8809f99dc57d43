//! Schedules that a review found. Each of these tests fails as long as its finding stands.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use idem_runtime::conformance::{Fault, Operation};
use idem_runtime::{ErrorKind, OnLeaseLost, OnOtherType, OnOutage, OnRunning, Reconciled};
use idem_tests::on_every_store;
use idem_tests::pay::{PayError, Receipt, Runs};
use idem_tests::world::World;
use tokio::sync::Semaphore;

on_every_store![
    a_verdict_from_before_another_body_starts_nothing,
    a_body_that_starts_after_its_riddle_was_taken_over_holds_a_lease,
    a_cancelled_call_does_not_adopt_the_answer_of_another_request,
    a_call_that_nobody_polls_does_not_block_its_key,
    duplicates_share_what_one_hook_could_not_find_out,
    an_unknown_outcome_of_an_overtaken_attempt_stays_unknown,
    a_call_with_a_hook_does_not_share_the_refusal_of_one_without,
    a_resolution_by_digest_keeps_the_operations_life,
    a_body_without_protection_has_its_time,
];

const LEASE: Duration = Duration::from_secs(30);

#[allow(clippy::unnecessary_wraps, reason = "it is what a body returns")]
fn receipt(run: u32) -> Result<Receipt, PayError> {
    Ok(Receipt { run })
}

/// An attempt that its process did not survive.
async fn abandoned(world: &World) {
    drop(world.pay().begin().await.unwrap());
    world.pass_in_store(LEASE);
}

/// The hook's process is paused, another one takes the key over and gives it back, and a renewal
/// says so. Then the hook ends, and the claim to run is granted: nobody renews it.
async fn a_body_that_starts_after_its_riddle_was_taken_over_holds_a_lease(world: World) {
    // Its renewal is due before the hook's deadline.
    let lease = LEASE / 2;
    let world = world.with(|engine| engine.lease(lease));
    abandoned(&world).await;
    let gate = Arc::new(Semaphore::new(0));
    let end = Arc::clone(&gate);
    let hook = |_| async move {
        end.acquire().await.unwrap().forget();
        Reconciled::<Duration>::NotLanded
    };
    let paused = tokio::spawn(world.pay().run_reconciled(hook, |cx| async move {
        Ok::<_, PayError>(cx.lease_remaining())
    }));
    world.events.wait_for("reconciling", 1).await;
    world.pass_in_store(LEASE);
    let nothing = |_| async { Reconciled::<Receipt>::NotLanded };
    let failed = world
        .pay_far()
        .on_other_type(OnOtherType::Accept)
        .run_reconciled(nothing, |_| async { Err(PayError::Down) });
    assert_eq!(failed.await, Err(PayError::Down));
    let third = lease / 3;
    world.clock.sleeper_within(third).await;
    world.clock.advance(third);
    world.events.wait_for("lease lost", 1).await;
    gate.add_permits(1);
    // To be refused is as good as to hold a lease.
    if let Ok(left) = paused.await.unwrap() {
        assert!(
            !left.is_zero(),
            "the body runs under a claim that nobody renews"
        );
    }
}

/// The hook's lease lapsed while it asked, its renewals having no reply; another process took the key
/// over, had the effect and panicked. Found by the model in `tests/protocol`.
async fn a_verdict_from_before_another_body_starts_nothing(world: World) {
    abandoned(&world).await;
    let lost = std::iter::repeat_n(Fault::Lost, 100);
    world.store.fail(Operation::Renew, lost);
    let gate = Arc::new(Semaphore::new(0));
    let end = Arc::clone(&gate);
    let hook = |_| async move {
        end.acquire().await.unwrap().forget();
        Reconciled::<Receipt>::NotLanded
    };
    let slow = world.pay().run_reconciled(hook, |_| async { receipt(2) });
    let slow = tokio::spawn(slow);
    world.events.wait_for("reconciling", 1).await;
    world.pass_in_store(LEASE);
    let nothing = |_| async { Reconciled::<Receipt>::NotLanded };
    let far = world.pay_far().run_reconciled(nothing, |_| async {
        panic!("after the effect");
        #[allow(unreachable_code, reason = "the type of the body")]
        receipt(1)
    });
    tokio::spawn(far).await.unwrap_err();
    gate.add_permits(1);
    let refused = slow.await.unwrap().unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Running { .. }),
        "a second effect: {refused:?}"
    );
    assert_eq!(world.events.count("dropped"), 1, "the abandoned one");
}

/// The record was lost, and a call with other arguments has the key by now.
async fn a_cancelled_call_does_not_adopt_the_answer_of_another_request(world: World) {
    let world = world.with(|engine| {
        let engine = engine.ttl(Duration::from_mins(1));
        engine.on_lease_lost(OnLeaseLost::Cancel)
    });
    let first = tokio::spawn(
        world
            .pay()
            .fingerprint(&1)
            .run(|_| std::future::pending::<Result<Receipt, PayError>>()),
    );
    world.events.wait_for("claimed", 1).await;
    world.pass_in_store(Duration::from_mins(1));
    let other = world
        .pay_far()
        .fingerprint(&2)
        .run(|_| async { receipt(2) });
    assert_eq!(other.await, receipt(2));
    world.clock.sleeper_within(LEASE / 3).await;
    world.clock.advance(LEASE / 3);
    let cancelled = world.finished(first).await;
    assert_ne!(
        cancelled,
        receipt(2),
        "this is what another request was answered"
    );
}

/// A future that is kept and not polled, as the loser of a `select!` by reference.
async fn a_call_that_nobody_polls_does_not_block_its_key(world: World) {
    world.store.fail(Operation::Claim, [Fault::Hangs]);
    let mut kept = Box::pin(world.pay().run(|_| async { receipt(1) }));
    std::future::poll_fn(|cx| {
        assert!(kept.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    // Its claim never arrived, and what could have arrived would have lapsed.
    world.clock.advance(Duration::from_hours(1));
    world.pass_in_store(Duration::from_hours(1));
    let second = world.pay().run(|_| async { receipt(2) }).await;
    assert_eq!(second, receipt(2), "the store has nothing under this key");
    drop(kept);
}

/// Ten duplicates of an unknown key ask the provider once, not ten times.
async fn duplicates_share_what_one_hook_could_not_find_out(world: World) {
    let timed_out = world
        .pay()
        .run(|_| async { Err::<Receipt, _>(PayError::TimedOut) });
    assert_eq!(timed_out.await, Err(PayError::TimedOut));
    let (gate, hooks) = (Arc::new(Semaphore::new(0)), Runs::default());
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let (gate, hooks) = (Arc::clone(&gate), hooks.clone());
            let hook = |_| async move {
                let _ = hooks.start();
                gate.acquire().await.unwrap().forget();
                Reconciled::<Receipt>::Unknown
            };
            tokio::spawn(world.pay().run_reconciled(hook, |_| async { receipt(1) }))
        })
        .collect();
    world.events.wait_for("reconciling", 1).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(10);
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Unknown { .. }),
            "{error:?}"
        );
    }
    assert_eq!(hooks.count(), 1, "they all waited for the same question");
}

/// The time-out comes after the lease was lost; the successor gives the key back.
async fn an_unknown_outcome_of_an_overtaken_attempt_stays_unknown(world: World) {
    let world = world.with(|engine| engine.on_running(OnRunning::Reject));
    let gates = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
    let [first, second] = &gates;
    let body = |gate: &Arc<Semaphore>, error: PayError| {
        let gate = Arc::clone(gate);
        move |_| async move {
            gate.acquire().await.unwrap().forget();
            Err::<Receipt, _>(error)
        }
    };
    let overtaken = tokio::spawn(world.pay().run(body(first, PayError::TimedOut)));
    world.events.wait_for("claimed", 1).await;
    world.pass_in_store(LEASE);
    let successor = tokio::spawn(world.pay_far().run(body(second, PayError::Down)));
    world.events.wait_for("claimed", 2).await;
    first.add_permits(1);
    let _ = overtaken.await.unwrap().unwrap_err();
    second.add_permits(1);
    assert_eq!(successor.await.unwrap(), Err(PayError::Down));
    // It was told that another one runs, and offers what it knows in the background.
    loop {
        tokio::select! {
            biased;
            () = world.events.wait_for("completed unknown", 1) => break,
            () = world.clock.sleeper_within(Duration::from_secs(1)) => {
                world.clock.advance(Duration::from_millis(100));
            }
        }
    }
    let third = world.pay().run(|_| async { receipt(3) }).await;
    let Err(error) = third else {
        panic!("a body ran after an error of class unknown")
    };
    assert!(
        matches!(error.kind(), ErrorKind::Unknown { .. }),
        "{error:?}"
    );
}

/// A function was given a hook while the other one still runs, or two share an operation.
async fn a_call_with_a_hook_does_not_share_the_refusal_of_one_without(world: World) {
    let world = world.with(|engine| engine.max_attempts(std::num::NonZeroU16::new(1)));
    abandoned(&world).await;
    world.store.fail(Operation::Claim, [Fault::ReplyHeld]);
    let without = tokio::spawn(world.pay().run(|_| async { receipt(1) }));
    let landed = |_| async { Reconciled::Landed(Receipt { run: 1 }) };
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let with = tokio::spawn(world.pay().run_reconciled(landed, |_| async { receipt(2) }));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    world.store.deliver();
    let refused = without.await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), &ErrorKind::Exhausted { attempts: 1 });
    assert_eq!(with.await.unwrap(), receipt(1), "the hook knows");
}

/// An operator resolves what a log named.
async fn a_resolution_by_digest_keeps_the_operations_life(world: World) {
    let week = Duration::from_hours(24 * 7);
    let call = || world.pay().ttl(week);
    let timed_out = call().run(|_| async { Err::<Receipt, _>(PayError::TimedOut) });
    assert_eq!(timed_out.await, Err(PayError::TimedOut));
    let digest = world.key().digest().to_string();
    let entry = world.engine.entry("pay", &digest).await.unwrap().unwrap();
    entry.resolve(&Receipt { run: 1 }).await.unwrap();
    world.pass_in_store(Duration::from_hours(25));
    let again = call().run(|_| async { receipt(2) }).await;
    assert_eq!(again, receipt(1), "it is kept for the operation's `ttl`");
}

/// The documented `timeout_at(cx.deadline(), …)` must not fail at once where nothing is protected.
async fn a_body_without_protection_has_its_time(world: World) {
    world.store.fail(Operation::Claim, [Fault::Lost; 10_000]);
    let call = world.pay().on_outage(OnOutage::Run);
    let deadline = call.run(|cx| async move {
        let time = cx
            .deadline()
            .saturating_duration_since(std::time::Instant::now());
        Ok::<_, PayError>(time)
    });
    let time = world.finished(tokio::spawn(deadline)).await.unwrap();
    assert!(!time.is_zero(), "`max_run` is 15 minutes");
}
