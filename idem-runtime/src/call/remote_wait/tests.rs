use std::sync::Weak;

use super::*;
use crate::call::engine::Engine;
use crate::env::clock::ManualClock;
use crate::identity::key::KeyDigest;
use crate::identity::operation::Operation;
use crate::local::cache::{Found, LocalCache};
use crate::local::singleflight::Join;
use crate::record::{Fence, Header, OutcomeKind};
use crate::store::memory::MemoryStore;
use crate::store::{Hearing, Listener, RecordKey, Store, StoreFuture};
use crate::testing::Forward;

const SECOND: Duration = Duration::from_secs(1);
const RETAIN: Duration = Duration::from_hours(1);
const ASKED: Fingerprint = Fingerprint::from_bytes([7; 16]);

/// A store whose `poll` reports a fresh answer, unless `exact`: as in Redis, where a plain `GET` does not return the
/// age.
#[derive(Debug)]
struct PolledStore {
    store: MemoryStore,
    exact: bool,
}

impl Forward for PolledStore {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    /// The test itself reports the state of the subscription.
    fn listen(&self, _: &Arc<str>, _: Weak<dyn Listener>) -> bool {
        true
    }

    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::pending(async move {
            let mut reply = self.store.read(key).await?;
            if let ReadReply::Found { left, .. } = &mut reply
                && !self.exact
            {
                *left = RETAIN;
            }
            Ok(reply)
        })
    }
}

/// The rest of a 200 s old answer's life, for calls: waiting calls, and whether they may report it; the next
/// call, from the local cache; the next call that reports it.
type RemainingLife = (u64, bool, Option<u64>, Option<u64>);

/// `seen`: how long ago the body was seen to run. `exact`: `poll` returns the exact remaining life. `dated`: the
/// waiting call needs it.
fn remaining_life(seen: Duration, exact: bool, dated: bool) -> RemainingLife {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let key = RecordKey::new(
        "shop".into(),
        Operation::new("pay"),
        KeyDigest::from_bytes([7; 32]),
    );
    let state = State::Done {
        outcome: OutcomeKind::Value,
        schema: 1,
    };
    let header = Header {
        fingerprint: ASKED,
        ..Header::new(state, Owner::from_bytes([1; 16]), Fence::new(3), RETAIN)
    };
    clock.advance(RETAIN);
    store.plant(&key, header.encode().to_vec().into(), RETAIN);
    clock.advance(200 * SECOND);
    let cache = LocalCache::new().max_age(RETAIN * 2);
    let engine = Engine::builder(PolledStore { store, exact });
    let engine = engine.clock(clock.clone()).local_cache(cache);
    let core = engine.build().unwrap().core;
    core.answers.as_ref().unwrap().hearing(Hearing::All);
    let now = core.clock.now();
    let Join::Lead(leader) = core.flights.join(key.digest(), ASKED, now, SECOND) else {
        panic!("no other call leads");
    };
    let remote_wait = RemoteWait {
        core: Arc::clone(&core),
        key: key.clone(),
        fingerprint: ASKED,
        dated,
        running: Running {
            seen: now.saturating_sub(seen),
            lease_left: SECOND,
        },
        leader,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let PollResult::Outcome(outcome) = runtime.unwrap().block_on(remote_wait.poll()) else {
        panic!("the record is finished");
    };
    let SharedOutcome::Done {
        left, at, dated, ..
    } = outcome
    else {
        panic!("no call is refused");
    };
    assert_eq!(at, now);
    let next = |tells_age| {
        let mut policy = core.defaults.clone();
        policy.tells_age = tells_age;
        match core.cached_answer(&key, ASKED, &policy, now) {
            Found::Answer { left, .. } => Some(left.as_secs()),
            Found::Nothing(_) => None,
        }
    };
    (left.as_secs(), dated, next(false), next(true))
}

#[test]
fn a_polled_answer_is_no_older_than_the_last_poll_that_saw_its_body() {
    for (seen, left) in [(300, 3_300), (0, 3_600), (9_999, 0)] {
        let next = (left > 0).then_some(left);
        let expected = (left, false, next, None);
        assert_eq!(
            remaining_life(seen * SECOND, false, false),
            expected,
            "{seen}"
        );
    }
    let exact = (3_400, false, Some(3_400), None);
    assert_eq!(remaining_life(100 * SECOND, true, false), exact);
}

#[test]
fn a_call_that_reports_the_remaining_life_reads_it_from_the_store() {
    let expected = (3_400, true, Some(3_400), Some(3_400));
    assert_eq!(remaining_life(300 * SECOND, false, true), expected);
}
