use std::sync::Weak;

use super::*;
use crate::conformance::Forward;
use crate::engine::Engine;
use crate::env::clock::ManualClock;
use crate::identity::key::KeyDigest;
use crate::identity::operation::Operation;
use crate::local::cache::{Found, LocalCache};
use crate::local::singleflight::Join;
use crate::record::{AnswerTypes, Fence, Header, OutcomeKind};
use crate::store::memory::MemoryStore;
use crate::store::{Hearing, Listener, RecordKey, Store, StoreFuture};

const SECOND: Duration = Duration::from_secs(1);
const RETAIN: Duration = Duration::from_hours(1);
const ASKED: Fingerprint = Fingerprint::from_bytes([7; 16]);

/// Reports at a glance that the life of an answer has just begun, unless `asks`: as `Redis` does, where a plain
/// `GET` does not return the age.
#[derive(Debug)]
struct Glancing {
    store: MemoryStore,
    asks: bool,
}

impl Forward for Glancing {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    /// The test itself reports the state of the subscription.
    fn listen(&self, _: &Arc<str>, _: Weak<dyn Listener>) -> bool {
        true
    }

    fn glance<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::pending(async move {
            let mut reply = self.store.read(key).await?;
            if let ReadReply::Found { left, .. } = &mut reply
                && !self.asks
            {
                *left = RETAIN;
            }
            Ok(reply)
        })
    }
}

/// The remaining life, as calls learn it, of a 200 s old answer.
#[derive(Debug, PartialEq)]
struct Learned {
    /// Of waiting calls, and whether they may report it.
    waiting: (Duration, bool),
    /// Of the next call, from the local cache.
    next: Option<Duration>,
    /// Of the next call that reports it.
    next_dated: Option<Duration>,
}

/// `seen`: how long ago the body was seen to run. `asks`: the store returns how long the answer is kept. `dated`: the
/// waiting call needs that.
fn learned(seen: Duration, asks: bool, dated: bool) -> Learned {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let key = RecordKey::new(
        "shop".into(),
        Operation::new("pay"),
        KeyDigest::from_bytes([7; 32]),
    );
    let header = Header {
        state: State::Done {
            outcome: OutcomeKind::Value,
            schema: 1,
        },
        owner: Owner::from_bytes([1; 16]),
        fence: Fence::new(3),
        attempts: 1,
        retain: RETAIN,
        fingerprint: ASKED,
        types: AnswerTypes::UNKNOWN,
    };
    clock.advance(RETAIN);
    store.plant(&key, header.encode().to_vec().into(), RETAIN);
    clock.advance(200 * SECOND);
    let cache = LocalCache::new().max_age(RETAIN * 2);
    let engine = Engine::builder(Glancing { store, asks });
    let engine = engine.clock(clock.clone()).local_cache(cache);
    let core = engine.build().unwrap().core;
    core.answers.as_ref().unwrap().hearing(Hearing::All);
    let now = core.clock.now();
    let Join::Lead(leader) = core.flights.join(key.digest(), ASKED, now, SECOND) else {
        panic!("nobody else asks");
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
    let Look::Landed(landing) = runtime.unwrap().block_on(remote_wait.look()) else {
        panic!("it is finished");
    };
    let SharedOutcome::Done {
        left, at, dated, ..
    } = landing
    else {
        panic!("nothing is refused");
    };
    assert_eq!(at, now);
    let next = |tells_age| {
        let mut policy = core.defaults.clone();
        policy.tells_age = tells_age;
        match core.recall(&key, ASKED, &policy, now) {
            Found::Answer { left, .. } => Some(left),
            Found::Nothing(_) => None,
        }
    };
    Learned {
        waiting: (left, dated),
        next: next(false),
        next_dated: next(true),
    }
}

#[test]
fn an_answer_at_a_glance_is_as_old_at_most_as_the_last_look_that_saw_its_body() {
    for (seen, left) in [(300, 3_300 * SECOND), (0, RETAIN), (9_999, Duration::ZERO)] {
        let (left, none) = (left, left.is_zero());
        let expected = Learned {
            waiting: (left, false),
            next: (!none).then_some(left),
            next_dated: None,
        };
        assert_eq!(learned(seen * SECOND, false, false), expected, "{seen}");
    }
}

#[test]
fn a_store_that_knows_how_long_it_keeps_an_answer_is_believed() {
    let left = 3_400 * SECOND;
    let expected = Learned {
        waiting: (left, false),
        next: Some(left),
        next_dated: None,
    };
    assert_eq!(learned(100 * SECOND, true, false), expected);
}

#[test]
fn who_says_how_long_an_answer_is_kept_has_it_from_the_store() {
    let left = 3_400 * SECOND;
    let expected = Learned {
        waiting: (left, true),
        next: Some(left),
        next_dated: Some(left),
    };
    assert_eq!(learned(300 * SECOND, false, true), expected);
}
