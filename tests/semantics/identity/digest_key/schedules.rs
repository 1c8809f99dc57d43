//! The cost of a former name, and the events between the claim under it and the one that follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, Needs, Record, RecordKey, Store, StoreError, StoreErrorKind,
    StoreFuture,
};
use idem_runtime::testing::Forward;
use idem_runtime::{Engine, ErrorKind, claim::Acquired, fingerprint::Fingerprint};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;

use super::fixture::{ChargeError, Fixture, NEW, OLD, patiently, refusal};

/// Counts claims, and holds those back that need a record.
#[derive(Debug)]
struct Held {
    inner: MemoryStore,
    claims: AtomicU32,
    /// A claim that needs a record takes one before it is sent.
    sends: Semaphore,
    /// One for each claim that needs a record and was made.
    made: Semaphore,
    /// Other claims wait as well.
    holds_all: AtomicBool,
    /// The next claim that needs a record is sent, and its reply lost.
    loses: AtomicBool,
}

const MANY: usize = 10_000;

impl Held {
    fn new(inner: MemoryStore, sends: usize) -> Arc<Self> {
        Arc::new(Self {
            inner,
            claims: AtomicU32::new(0),
            sends: Semaphore::new(sends),
            made: Semaphore::new(0),
            holds_all: AtomicBool::new(false),
            loses: AtomicBool::new(false),
        })
    }

    fn claims(&self) -> u32 {
        self.claims.load(Ordering::SeqCst)
    }

    async fn has_made_one(&self) {
        patiently("a claim is made", self.made.acquire())
            .await
            .unwrap()
            .forget();
    }
}

impl Forward for Held {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    /// The store is queried for each replay.
    fn at_hand(&self, _: &RecordKey, _: Fingerprint) -> Option<(Record, Duration)> {
        None
    }

    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        let is_held = request.needs == Needs::Record || self.holds_all.load(Ordering::SeqCst);
        if !is_held {
            return self.inner.claim(key, request);
        }
        StoreFuture::pending(async move {
            self.made.add_permits(1);
            self.sends.acquire().await.expect("it stays open").forget();
            let reply = self.inner.claim(key, request).await;
            if self.loses.swap(false, Ordering::SeqCst) {
                return Err(StoreError::new(
                    StoreErrorKind::Unavailable,
                    "the reply is lost",
                ));
            }
            reply
        })
    }
}

const TTL: Duration = Duration::from_mins(1);

/// A store by a clock that is moved, and its callers before and after a change of the secret.
struct Change {
    clock: ManualClock,
    held: Arc<Held>,
    fixture: Arc<Fixture>,
    before: Engine,
    after: [Engine; 2],
}

impl Change {
    fn new(sends: usize) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let held = Held::new(store, sends);
        let fixture = Fixture::on(held.clone());
        Self {
            clock,
            held,
            before: fixture.engine(Some(OLD)),
            after: [(); 2].map(|()| fixture.engine_after(Some(OLD), Some(NEW))),
            fixture: Arc::new(fixture),
        }
    }

    /// A record of a failed attempt that lives for `TTL`.
    async fn is_released(&self) {
        let call = Fixture::call(&self.before, "card", 5)
            .count_errors(true)
            .ttl(TTL);
        let down = self.fixture.charged(call, Err(ChargeError::Down)).await;
        assert_eq!(down, Err(ChargeError::Down));
    }

    fn charge(&self, engine: &Engine) -> tokio::task::JoinHandle<super::fixture::Answer> {
        let (fixture, engine) = (Arc::clone(&self.fixture), engine.clone());
        tokio::spawn(async move { fixture.charge(&engine, "card", 5).await })
    }
}

#[tokio::test]
async fn a_secret_alone_costs_no_round_trip_and_a_former_one_costs_one() {
    for (former, secret, claims) in [
        (None, None, 1),
        (None, Some(OLD), 1),
        (Some(OLD), Some(NEW), 2),
        (Some(OLD), None, 2),
    ] {
        let held = Held::new(MemoryStore::new(), MANY);
        let fixture = Fixture::on(held.clone());
        let engine = match former {
            Some(former) => fixture.engine_after(Some(former), secret),
            None => fixture.engine(secret),
        };
        // The first call, and a replay.
        for _ in 0..2 {
            let before = held.claims();
            assert_eq!(fixture.charge(&engine, "card", 5).await, Ok(1));
            assert_eq!(held.claims() - before, claims, "{former:?} {secret:?}");
        }
    }
    // A replay from before the change costs none.
    let change = Change::new(MANY);
    let [after, _] = &change.after;
    assert_eq!(
        change.fixture.charge(&change.before, "card", 5).await,
        Ok(1)
    );
    let before = change.held.claims();
    assert_eq!(change.fixture.charge(after, "card", 5).await, Ok(1));
    assert_eq!(change.held.claims() - before, 1);
}

/// The record from before expires while a claim that goes on with it is on its way: of two processes one runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_expires_before_the_claim_leaves_its_name() {
    let change = Change::new(0);
    change.is_released().await;
    let [slow, quick] = &change.after;
    let late = change.charge(slow);
    change.held.has_made_one().await;
    change.clock.advance(TTL + Duration::from_secs(1));
    // The other process finds nothing under the former name, and begins under the new one.
    let first = change.charge(quick);
    change.held.has_made_one().await;
    change.held.sends.add_permits(MANY);
    let answers = [
        patiently("an answer", late).await,
        patiently("an answer", first).await,
    ];
    assert_eq!(answers.map(Result::unwrap), [Ok(1), Ok(1)]);
    assert_eq!(change.fixture.runs(), 1);
    // Without the former secret it is found: it has the new name.
    let last = change.fixture.engine(Some(NEW));
    assert_eq!(change.fixture.charge(&last, "card", 5).await, Ok(1));
}

/// The claim is granted, its reply lost, and the record expires before it is sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_sent_again_after_its_record_has_expired_begins_none() {
    let change = Change::new(0);
    change.is_released().await;
    let [slow, quick] = &change.after;
    change.held.loses.store(true, Ordering::SeqCst);
    let lost = change.charge(slow);
    change.held.has_made_one().await;
    change.held.sends.add_permits(1);
    // Sent again.
    change.held.has_made_one().await;
    // The record of the lost claim lives for the default `ttl`.
    change.clock.advance(Duration::from_hours(25));
    let first = change.charge(quick);
    change.held.has_made_one().await;
    change.held.sends.add_permits(MANY);
    let answers = [
        patiently("an answer", lost).await,
        patiently("an answer", first).await,
    ];
    assert_eq!(answers.map(Result::unwrap), [Ok(1), Ok(1)]);
    assert_eq!(change.fixture.runs(), 1);
}

/// One process goes on under the former name while another claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_goes_on_under_the_former_name_is_waited_for() {
    let change = Change::new(MANY);
    change.is_released().await;
    let [one, other] = &change.after;
    let call = Fixture::call(one, "card", 5).begin();
    let Ok(Acquired::Run(claim)) = patiently("it goes on", call).await else {
        panic!("the record is released");
    };
    let waiting = change.charge(other);
    // It has looked, and waits.
    for _ in 0..2 {
        change.held.has_made_one().await;
    }
    assert!(!waiting.is_finished());
    claim.complete(7_u32).await.unwrap();
    assert_eq!(patiently("its answer", waiting).await.unwrap(), Ok(7));
    assert_eq!(change.fixture.runs(), 0);
}

#[tokio::test]
async fn a_call_within_itself_is_refused_under_either_name() {
    let change = Change::new(MANY);
    change.is_released().await;
    let [engine, _] = change.after.clone();
    for card in ["card", "another"] {
        let (fixture, inner) = (Arc::clone(&change.fixture), engine.clone());
        let call = Fixture::call(&engine, card, 5);
        let nested = call.run(|_| async move {
            let refused = refusal(fixture.charge(&inner, card, 5).await);
            assert!(matches!(refused, ErrorKind::Reentered), "{refused:?}");
            Ok::<_, ChargeError>(1_u32)
        });
        assert_eq!(patiently("it is refused", nested).await, Ok(1));
    }
}

/// Followers leave the former name with the call that they follow, and do not claim one after another.
#[tokio::test]
async fn followers_do_not_ask_for_themselves() {
    const CALLERS: u32 = 500;
    let change = Change::new(0);
    change.held.holds_all.store(true, Ordering::SeqCst);
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (fixture, engine) = (Arc::clone(&change.fixture), change.after[0].clone());
        callers.spawn(async move { fixture.charge(&engine, "card", 5).await });
    }
    for _ in 0..2 {
        change.held.has_made_one().await;
        // All others follow by now.
        for _ in 0..2 * CALLERS {
            tokio::task::yield_now().await;
        }
        change.held.sends.add_permits(1);
    }
    let answers = patiently("all are answered", callers.join_all()).await;
    assert!(answers.iter().all(|answer| *answer == Ok(1)));
    assert_eq!(change.held.claims(), 2);
}

/// Duplicates at once, of which one may run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_at_the_limit_have_one_body() {
    const CALLERS: usize = 50;
    for released in [false, true] {
        let change = Change::new(MANY);
        if released {
            change.is_released().await;
        }
        let engine = change.fixture.after(Some(OLD), Some(NEW)).max_running(1);
        let engine = engine.build().unwrap();
        let together = Arc::new(Barrier::new(CALLERS));
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (fixture, engine) = (Arc::clone(&change.fixture), engine.clone());
            let together = Arc::clone(&together);
            callers.spawn(async move {
                together.wait().await;
                let run = fixture.run();
                let call = Fixture::call(&engine, "card", 5).run(|_| async move {
                    tokio::task::yield_now().await;
                    Ok::<_, ChargeError>(run())
                });
                patiently("a charge", call).await
            });
        }
        let answers = patiently("all are answered", callers.join_all()).await;
        assert!(answers.iter().all(|answer| *answer == Ok(1)), "{answers:?}");
        assert_eq!(change.fixture.runs(), 1);
    }
}
