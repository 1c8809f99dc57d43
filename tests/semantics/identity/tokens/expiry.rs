//! An expired token starts nothing, and still leads to the call that it started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{
    Engine, EngineBuilder, ErrorKind, OnOutage, OnRunning, claim::Acquired, token::TokenIssuer,
};
use idem_tests::faulty::StoreOperation;
use tokio::sync::Semaphore;

use super::fixture::{
    ANN, Answer, Calendar, Fixture, Kind, LIFE, OPERATION, OrderError, PATIENCE, SECRET, patiently,
    refusal,
};

/// More than the life of a token, rounded up to the second.
const OVER: Duration = LIFE.saturating_add(Duration::from_secs(1));

fn assert_expired(answer: Answer) {
    let error = refusal(answer);
    assert_eq!(*error.kind(), ErrorKind::TokenExpired, "{error}");
    assert!(!error.is_retryable());
}

pub(crate) async fn an_expired_token_starts_nothing(kind: Kind) {
    let (fixture, calendar) = Fixture::with_calendar(kind).await;
    let token = fixture.token();
    calendar.advance(OVER);
    assert_expired(fixture.order(fixture.call(&token)).await);
    let careless = fixture.call(&token).on_outage(OnOutage::Run);
    assert_expired(fixture.order(careless).await);
    let error = fixture.call(&token).begin().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::TokenExpired);
    assert!(fixture.call(&token).entry().await.unwrap().is_none());
    // Another's is not even looked up.
    let other = fixture.near.operation(OPERATION).token(&token, "bob");
    let error = refusal(fixture.order(other).await);
    assert_eq!(*error.kind(), ErrorKind::TokenInvalid);
    assert_eq!((fixture.runs(), fixture.events.count("claimed")), (0, 0));
}

pub(crate) async fn an_expired_token_gets_the_answer(kind: Kind) {
    let (fixture, calendar) = Fixture::with_calendar(kind).await;
    let [good, bad] = [fixture.token(), fixture.token()];
    let order = |item: &'static str| fixture.order(fixture.call(&good).fingerprint(item));
    assert_eq!(order("tea").await, Ok(1));
    let sold_out = fixture.order_that(fixture.call(&bad), Err(OrderError::SoldOut));
    assert_eq!(sold_out.await, Err(OrderError::SoldOut));
    calendar.advance(OVER);
    assert_eq!(order("tea").await, Ok(1));
    assert_eq!(fixture.order(fixture.call_far(&good)).await, Ok(1));
    assert_eq!(*refusal(order("coffee").await).kind(), ErrorKind::Mismatch);
    let again = fixture.order(fixture.call_far(&bad)).await;
    assert_eq!(again, Err(OrderError::SoldOut));
    match fixture.call(&good).begin().await.unwrap() {
        Acquired::Replay(stored) => assert_eq!(stored.decode::<u32>().unwrap(), 1),
        begun => panic!("not answered: {begun:?}"),
    }
    assert!(fixture.call(&good).entry().await.unwrap().is_some());
    assert_eq!(fixture.runs(), 2);
}

pub(crate) async fn an_expired_token_waits_for_a_running_order(kind: Kind) {
    let (fixture, calendar) = Fixture::with_calendar(kind).await;
    let token = fixture.token();
    let gate = Arc::new(Semaphore::new(0));
    let (say, told) = tokio::sync::oneshot::channel();
    let (end, runs) = (gate.clone(), fixture.runs.clone());
    let first = tokio::spawn(fixture.call(&token).run(|_| async move {
        say.send(()).unwrap();
        end.acquire().await.unwrap().forget();
        Ok::<_, OrderError>(runs.fetch_add(1, Ordering::SeqCst) + 1)
    }));
    patiently("the first begins", told).await.unwrap();
    calendar.advance(OVER);
    for call in [fixture.call(&token), fixture.call_far(&token)] {
        let error = refusal(fixture.order(call.on_running(OnRunning::Reject)).await);
        assert!(matches!(error.kind(), ErrorKind::Running { .. }), "{error}");
    }
    let waiting = [fixture.call(&token), fixture.call_far(&token)].map(|call| {
        let call = call.on_running(OnRunning::Wait(PATIENCE));
        tokio::spawn(call.run(async |_| -> Answer { unreachable!("its token has expired") }))
    });
    // A waiting call of another process polls the record now and then, or watches it.
    let looks =
        || fixture.store.count(StoreOperation::Read) + fixture.store.count(StoreOperation::Watch);
    let waits = async {
        while looks() == 0 {
            tokio::task::yield_now().await;
        }
    };
    patiently("the other process waits", waits).await;
    gate.add_permits(1);
    assert_eq!(patiently("the first ends", first).await.unwrap(), Ok(1));
    for waiting in waiting {
        assert_eq!(
            patiently("the waiting call ends", waiting).await.unwrap(),
            Ok(1)
        );
    }
    assert_eq!(fixture.runs(), 1);
}

pub(crate) async fn an_expired_token_that_was_given_back_starts_nothing(kind: Kind) {
    let (fixture, calendar) = Fixture::with_calendar(kind).await;
    let token = fixture.token();
    let down = fixture.order_that(fixture.call(&token), Err(OrderError::Down));
    assert_eq!(down.await, Err(OrderError::Down));
    calendar.advance(OVER);
    assert_expired(fixture.order(fixture.call(&token)).await);
    assert_eq!(fixture.runs(), 1);
}

pub(crate) async fn an_expired_token_of_an_abandoned_order_is_unknown(kind: Kind) {
    let (fixture, calendar) = Fixture::with_calendar(kind).await;
    let token = fixture.token();
    let call = fixture.call(&token).lease(Duration::from_millis(100));
    match call.begin().await.unwrap() {
        // As if its process died: the lease is over by the store's clock, and is not renewed.
        Acquired::Run(claim) => drop(claim),
        begun => panic!("not claimed: {begun:?}"),
    }
    calendar.advance(OVER);
    let lapsed = async {
        loop {
            let error = refusal(
                fixture
                    .order(fixture.call_far(&token).on_running(OnRunning::Reject))
                    .await,
            );
            match error.kind() {
                ErrorKind::Running { .. } => tokio::task::yield_now().await,
                _ => return error,
            }
        }
    };
    let error = patiently("the lease lapses", lapsed).await;
    assert!(matches!(error.kind(), ErrorKind::Unknown { .. }), "{error}");
    assert!(error.to_string().contains("token has expired"), "{error}");
    assert_eq!(fixture.runs(), 0);
}

/// The clocks of two processes are nearly a minute apart, answers live for a second, and the token is sent to both
/// every second.
#[tokio::test]
async fn a_record_outlives_its_token_on_every_clock() {
    let time = ManualClock::new();
    let [ahead, behind] = [ManualClock::new(), ManualClock::new()];
    ahead.advance(Duration::from_secs(59));
    let store = MemoryStore::builder().clock(time.clone()).build();
    let engines = [&ahead, &behind].map(|clock| {
        let issuer = TokenIssuer::new(SECRET).life(LIFE);
        let builder = Engine::builder(store.clone()).clock(clock.clone());
        let builder = builder
            .ttl(Duration::from_secs(1))
            .error_ttl(Duration::from_secs(1));
        builder.tokens(issuer).build().unwrap()
    });
    for sold_out in [false, true] {
        for used_first in 0..2 {
            for after in [0, 100, 240] {
                let token = engines[1].issue_token(OPERATION, ANN).unwrap();
                let mut runs = 0;
                for second in 0..400 {
                    let turns = match second {
                        _ if second < after => 0..0,
                        _ if second == after => used_first..used_first + 1,
                        _ => 0..2,
                    };
                    for engine in &engines[turns] {
                        let call = engine.operation(OPERATION).token(&token, ANN);
                        let body = async {
                            runs += 1;
                            if sold_out {
                                Err(OrderError::SoldOut)
                            } else {
                                Ok(1_u32)
                            }
                        };
                        let _: Answer = call.run(|_| body).await;
                    }
                    for clock in [&time, &ahead, &behind] {
                        clock.advance(Duration::from_secs(1));
                    }
                }
                assert_eq!(
                    runs, 1,
                    "used first after {after} s, by engine {used_first}"
                );
            }
        }
    }
}

/// The one engine is that of a process before the digest key was changed, the other after.
pub(crate) async fn an_expired_token_is_looked_for_under_its_former_name(kind: Kind) {
    let calendar = Calendar::default();
    let is_after = AtomicBool::new(false);
    let settings = |engine: EngineBuilder| {
        if is_after.swap(true, Ordering::SeqCst) {
            engine.digest_key([2; 32]).former_digest_key([1; 32])
        } else {
            engine.digest_key([1; 32])
        }
    };
    let fixture = Fixture::with(kind, calendar.clone(), settings).await;
    let [done, released, unused] = [(); 3].map(|()| fixture.token());
    assert_eq!(fixture.order(fixture.call(&done)).await, Ok(1));
    let down = fixture.order_that(fixture.call(&released), Err(OrderError::Down));
    assert_eq!(down.await, Err(OrderError::Down));
    calendar.advance(OVER);
    assert_eq!(fixture.order(fixture.call_far(&done)).await, Ok(1));
    assert_expired(fixture.order(fixture.call_far(&released)).await);
    assert_expired(fixture.order(fixture.call_far(&unused)).await);
    assert_eq!(fixture.runs(), 2);
    assert!(fixture.call_far(&unused).entry().await.unwrap().is_none());
}
