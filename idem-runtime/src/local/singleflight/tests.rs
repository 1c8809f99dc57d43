use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::call::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::Operation;
use crate::policy::OnRunning;
use crate::store::memory::MemoryStore;

const KEY: KeyDigest = KeyDigest::from_bytes([7; 32]);
const ASKED: Fingerprint = Fingerprint::from_bytes([7; 16]);
const WITHIN: Duration = Duration::from_secs(4);

impl Flights {
    /// The number of flights.
    fn count(&self) -> usize {
        let counts = self.shards.iter().map(|shard| shard.lock().flights.len());
        counts.sum()
    }

    fn lead(&self) -> Leader {
        match self.join(&KEY, ASKED, Duration::ZERO, WITHIN) {
            Join::Lead(leader) => leader,
            _ => panic!("another call leads"),
        }
    }

    fn follow(&self) -> Follower {
        match self.join(&KEY, ASKED, Duration::ZERO, WITHIN) {
            Join::Follow(follower, _) => follower,
            _ => panic!("no call leads"),
        }
    }
}

fn refused() -> SharedOutcome {
    SharedOutcome::Refused {
        sent: Duration::ZERO,
        error: Error::new(ErrorKind::Mismatch, Operation::new("pay")),
        max_attempts: None,
    }
}

fn poll_once<T>(work: impl Future<Output = T>) -> Option<T> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_notified_flight_is_removed() {
    let flights = Flights::new();
    flights.lead().notify(|| Some(refused()));
    assert_eq!(flights.count(), 0, "without followers");
    let (leader, mut follower) = (flights.lead(), flights.follow());
    leader.notify(|| Some(refused()));
    assert_eq!(flights.count(), 0, "with a follower");
    assert!(matches!(poll_once(follower.outcome()), Some(Some(_))));
    let (leader, mut follower) = (flights.lead(), flights.follow());
    drop(leader.notify_last(refused()));
    assert_eq!(flights.count(), 0, "from the background thread");
    assert!(matches!(poll_once(follower.outcome()), Some(Some(_))));
}

#[test]
fn a_dropped_leader_without_followers_removes_its_flight() {
    let flights = Flights::new();
    drop(flights.lead());
    assert_eq!(flights.count(), 0);
    let (leader, follower) = (flights.lead(), flights.follow());
    drop(follower);
    assert_eq!(flights.count(), 1, "it is led");
    drop(leader);
    assert_eq!(flights.count(), 0);
}

#[test]
fn the_last_follower_removes_a_flight_without_leader() {
    let flights = Flights::new();
    let (leader, mut one) = (flights.lead(), flights.follow());
    let other = flights.follow();
    drop(leader);
    assert!(
        matches!(poll_once(one.outcome()), Some(None)),
        "it has to claim again"
    );
    drop(one);
    assert_eq!(flights.count(), 1, "the other one may still lead");
    drop(other);
    assert_eq!(flights.count(), 0);
}

#[test]
fn a_follower_of_an_earlier_flight_does_not_remove_a_later_one() {
    let flights = Flights::new();
    let (early, waits) = (flights.lead(), flights.follow());
    flights.forget(&KEY);
    assert_eq!(flights.count(), 0);
    let (late, still) = (flights.lead(), flights.follow());
    drop((early, waits));
    assert_eq!(flights.count(), 1);
    drop(late);
    assert_eq!(flights.count(), 1);
    drop(still);
    assert_eq!(flights.count(), 0);
}

#[test]
fn a_late_leader_does_not_remove_a_later_flight() {
    let flights = Flights::new();
    let slow = flights.lead();
    let join = |now| flights.join(&KEY, ASKED, now, WITHIN);
    let Join::Lead(next) = join(WITHIN) else {
        panic!("the first one should have its reply")
    };
    assert_eq!(flights.count(), 1);
    slow.notify(|| unreachable!("its followers were notified"));
    drop(slow);
    let Join::Follow(mut waits, Some(left)) = join(WITHIN) else {
        panic!("the second leader claims")
    };
    assert_eq!(left, WITHIN);
    next.notify(|| Some(refused()));
    assert!(matches!(poll_once(waits.outcome()), Some(Some(_))));
}

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(test);
}

#[test]
fn calls_leave_no_flight_behind() {
    run(async {
        let engine = Engine::new(MemoryStore::new());
        let flights = &engine.core.flights;
        let call = |key: &str| engine.operation("pay").key(key);
        for times in 0..2 {
            let paid = call("ends").run(|_| async { Ok::<_, Error>(1) }).await;
            assert_eq!((paid, flights.count()), (Ok(1), 0), "{times}");
        }
        let failed = || Error::new(ErrorKind::StoreUnavailable, Operation::new("bank"));
        let failed = call("fails").run(|_| async { Err::<u8, _>(failed()) });
        assert!(failed.await.is_err());
        assert_eq!(flights.count(), 0, "an error");
        let mut panics =
            pin!(call("panics").run(async |_| -> Result<u8, Error> { panic!("out of paper") }));
        let panicked = std::future::poll_fn(|cx| {
            let polled = AssertUnwindSafe(|| panics.as_mut().poll(cx));
            match std::panic::catch_unwind(polled) {
                Ok(polled) => polled.map(|_| false),
                Err(_) => Poll::Ready(true),
            }
        });
        assert!(panicked.await);
        assert_eq!(flights.count(), 0, "a panic");
    });
}

#[test]
fn dropped_calls_leave_no_flight_behind() {
    run(async {
        let engine = Engine::new(MemoryStore::new());
        let flights = &engine.core.flights;
        let call = || {
            let call = engine.operation("pay").key(&7);
            let wait = OnRunning::Wait(Duration::from_hours(1));
            let call = call.on_running(wait).run(|_| async {
                std::future::pending::<()>().await;
                Ok::<_, Error>(1)
            });
            Box::pin(call)
        };
        let (mut runs, mut waits) = (call(), call());
        assert!(poll_once(runs.as_mut()).is_none(), "it runs");
        assert!(poll_once(waits.as_mut()).is_none(), "it follows");
        assert_eq!(flights.count(), 1);
        // The follower is notified, and dropped before it has claimed.
        drop(runs);
        assert_eq!(flights.count(), 1, "the follower may lead");
        drop(waits);
        assert_eq!(flights.count(), 0);
    });
}

#[tokio::test]
async fn a_leader_that_resigned_notifies_no_follower() {
    let flights = Flights::new();
    let (leader, mut follower) = (flights.lead(), flights.follow());
    leader.resign();
    assert!(follower.outcome().await.is_none());
    // The notified follower leads the next flight.
    let (next, mut waits) = (flights.lead(), flights.follow());
    leader.notify(|| unreachable!("the leader resigned"));
    drop(leader);
    next.notify(|| Some(refused()));
    let outcome = waits.outcome().await;
    assert!(matches!(outcome, Some(SharedOutcome::Refused { .. })));
}
