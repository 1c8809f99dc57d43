use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::engine::Engine;
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
        let counts = self.shards.iter().map(|shard| lock(shard).flights.len());
        counts.sum()
    }

    fn lead(&self) -> Leader {
        match self.join(&KEY, ASKED, Duration::ZERO, WITHIN) {
            Join::Lead(leader) => leader,
            _ => panic!("somebody leads"),
        }
    }

    fn follow(&self) -> Follower {
        match self.join(&KEY, ASKED, Duration::ZERO, WITHIN) {
            Join::Follow(follower, _) => follower,
            _ => panic!("nobody leads"),
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

fn at_once<T>(work: impl Future<Output = T>) -> Option<T> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_flight_that_lands_is_over() {
    let flights = Flights::new();
    flights.lead().land(|| Some(refused()));
    assert_eq!(flights.count(), 0, "nobody waits");
    let (leader, mut follower) = (flights.lead(), flights.follow());
    leader.land(|| Some(refused()));
    assert_eq!(flights.count(), 0, "somebody waits");
    assert!(matches!(at_once(follower.landing()), Some(Some(_))));
    let (leader, mut follower) = (flights.lead(), flights.follow());
    drop(leader.land_from_afar(refused()));
    assert_eq!(flights.count(), 0, "it lands elsewhere");
    assert!(matches!(at_once(follower.landing()), Some(Some(_))));
}

#[test]
fn a_leader_that_goes_leaves_nothing_where_nobody_waits() {
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
fn a_flight_that_nobody_leads_goes_with_the_last_who_waits() {
    let flights = Flights::new();
    let (leader, mut one) = (flights.lead(), flights.follow());
    let other = flights.follow();
    drop(leader);
    assert!(matches!(at_once(one.landing()), Some(None)), "it is to ask");
    drop(one);
    assert_eq!(flights.count(), 1, "the other one may still lead");
    drop(other);
    assert_eq!(flights.count(), 0);
}

#[test]
fn who_waited_for_an_earlier_flight_takes_no_later_one_away() {
    let flights = Flights::new();
    let (early, waits) = (flights.lead(), flights.follow());
    flights.forget(&KEY);
    assert_eq!(flights.count(), 0);
    let (late, still) = (flights.lead(), flights.follow());
    drop((early, waits));
    assert_eq!(flights.count(), 1);
    // This one has no leader either.
    drop(late);
    assert_eq!(flights.count(), 1);
    drop(still);
    assert_eq!(flights.count(), 0);
}

#[test]
fn a_leader_that_took_too_long_takes_no_later_flight_away() {
    let flights = Flights::new();
    let slow = flights.lead();
    let join = |now| flights.join(&KEY, ASKED, now, WITHIN);
    let Join::Lead(next) = join(WITHIN) else {
        panic!("the first one should have its reply")
    };
    assert_eq!(flights.count(), 1);
    slow.land(|| unreachable!("nobody waits for it any more"));
    drop(slow);
    let Join::Follow(mut waits, Some(left)) = join(WITHIN) else {
        panic!("the second one asks")
    };
    assert_eq!(left, WITHIN);
    next.land(|| Some(refused()));
    assert!(matches!(at_once(waits.landing()), Some(Some(_))));
}

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(test);
}

#[test]
fn calls_leave_no_flight_behind_however_they_end() {
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
fn calls_that_are_dropped_leave_no_flight_behind() {
    run(async {
        let engine = Engine::new(MemoryStore::new());
        let flights = &engine.core.flights;
        let call = || {
            let call = engine.operation("pay").key(&7);
            let patience = OnRunning::Wait(Duration::from_hours(1));
            let call = call.on_running(patience).run(|_| async {
                std::future::pending::<()>().await;
                Ok::<_, Error>(1)
            });
            Box::pin(call)
        };
        let (mut runs, mut waits) = (call(), call());
        assert!(at_once(runs.as_mut()).is_none(), "it runs");
        assert!(at_once(waits.as_mut()).is_none(), "it waits for that");
        assert_eq!(flights.count(), 1);
        // The follower is notified, and dropped before it has claimed.
        drop(runs);
        assert_eq!(flights.count(), 1, "it is for the other one to lead");
        drop(waits);
        assert_eq!(flights.count(), 0);
    });
}

#[tokio::test]
async fn who_was_told_is_not_asked_to_ask() {
    let flights = Flights::new();
    let (leader, mut follower) = (flights.lead(), flights.follow());
    leader.land(|| Some(refused()));
    leader.give_up();
    leader.land(|| unreachable!("they were told"));
    drop(leader);
    let landing = follower.landing().await;
    assert!(matches!(landing, Some(SharedOutcome::Refused { .. })));
}

#[tokio::test]
async fn who_was_asked_to_ask_is_told_nothing_by_a_ticket_that_was_given_up() {
    let flights = Flights::new();
    let (leader, mut follower) = (flights.lead(), flights.follow());
    leader.give_up();
    assert!(follower.landing().await.is_none());
    // The notified follower leads the next flight.
    let (next, mut waits) = (flights.lead(), flights.follow());
    leader.land(|| unreachable!("it was given up"));
    drop(leader);
    next.land(|| Some(refused()));
    let landing = waits.landing().await;
    assert!(matches!(landing, Some(SharedOutcome::Refused { .. })));
}
