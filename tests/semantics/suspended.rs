//! A machine that is suspended: time passes here and in the store, and no timer of the process ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use idem_runtime::clock::{ManualClock, Sleep};

use crate::prelude::*;
use crate::steps::counted;

/// A clock whose timers stop during a suspension, as tokio's.
#[derive(Clone, Debug)]
struct SuspendableClock {
    timers: ManualClock,
    suspended_secs: Arc<AtomicU64>,
}

impl SuspendableClock {
    fn suspended(&self) -> Duration {
        Duration::from_secs(self.suspended_secs.load(Ordering::SeqCst))
    }
}

impl Clock for SuspendableClock {
    fn now(&self) -> Duration {
        self.timers.now() + self.suspended()
    }

    fn calendar(&self) -> SystemTime {
        self.timers.calendar() + self.suspended()
    }

    fn sleep_until(&self, moment: Duration) -> Sleep {
        let left = moment.saturating_sub(self.now());
        self.timers.sleep_until(self.timers.now() + left)
    }
}

struct Suspendable {
    fixture: Fixture,
    clock: SuspendableClock,
}

impl Suspendable {
    fn new() -> Self {
        let fixture = Fixture::memory();
        let clock = SuspendableClock {
            timers: fixture.clock.clone(),
            suspended_secs: Arc::default(),
        };
        let by_clock = clock.clone();
        let fixture = fixture.with(move |engine| engine.clock(by_clock.clone()));
        Self { fixture, clock }
    }

    fn suspend(&self, time: Duration) {
        self.fixture.pass_in_store(time);
        let suspended = &self.clock.suspended_secs;
        suspended.fetch_add(time.as_secs(), Ordering::SeqCst);
    }
}

/// The other process has the claim, and its step runs.
#[tokio::test]
async fn a_step_after_a_suspension_does_not_run_beside_that_of_another_process() {
    let machine = Suspendable::new();
    let (fixture, mail) = (&machine.fixture, Runs::default());
    // Its thread may wake up for another reason than its timer.
    fixture.fail(StoreOperation::Renew, [Fault::Lost; 10_000]);
    let (call, runs) = (fixture.pay(), mail.clone());
    let body = Body::begun(|gate, begun| {
        tokio::spawn(call.run(async move |_| {
            begun.add_permits(1);
            gate.acquire().await.unwrap().forget();
            counted("mail", &runs).await
        }))
    });
    let body = body.await;
    machine.suspend(LEASE_OVER);
    let other = fixture.pay_far().run(|_| counted("mail", &mail));
    assert_eq!(other.await, receipt(1));
    assert_running(&refusal(until(fixture, body.end()).await));
    assert_eq!(mail.count(), 1);
}

/// Another process may have answered.
#[tokio::test]
async fn an_unconfirmed_answer_is_not_returned_after_a_suspension() {
    let machine = Suspendable::new();
    let fixture = &machine.fixture;
    let call = fixture.pay().run(async |_| {
        fixture.fail(StoreOperation::Complete, [Fault::Lost; 10_000]);
        fixture.fail(StoreOperation::Renew, [Fault::Lost; 10_000]);
        machine.suspend(LEASE_OVER);
        receipt(1)
    });
    assert_refusal(until(fixture, call).await, &ErrorKind::Unconfirmed);
}
