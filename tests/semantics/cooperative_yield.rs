//! A task whose calls are answered at once lets other tasks run.

use std::sync::atomic::{AtomicUsize, Ordering};

use idem_runtime::cache::LocalCache;
use idem_runtime::testing::Faulty;
use idem_tests::shop::until;

use crate::prelude::*;

type Call = CallBuilder;

/// Many times a tokio task's budget of one turn.
const CALLS: usize = 10_000;
/// More than it may do, and far below all of them.
const FEW: usize = CALLS / 10;

fn pay(engine: &Engine, key: usize) -> Call {
    engine.operation("pay").key(&key)
}

/// Makes all the calls in one task; another one has its turn after few of them.
async fn take_turns<F>(call: impl Fn(usize) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send,
{
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let calls = tokio::spawn(async move {
        for number in 0..CALLS {
            call(number).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let seen = tokio::spawn(async move { made.load(Ordering::Relaxed) });
    let seen = seen.await.unwrap();
    calls.await.unwrap();
    assert!(seen < FEW, "{seen} of {CALLS} calls in one turn");
}

/// A call whose body succeeds.
async fn pays(call: Call) {
    assert_eq!(call.run(|_| async { Ok::<_, PayError>(1) }).await, Ok(1));
}

#[tokio::test]
async fn first_calls_and_replays_take_turns() {
    for is_replay in [false, true] {
        let engine = Engine::new(MemoryStore::new());
        let key = move |number| if is_replay { 7 } else { number };
        take_turns(move |number| pays(pay(&engine, key(number)))).await;
    }
}

#[tokio::test]
async fn replays_of_the_local_cache_take_turns() {
    let store = Faulty::new(MemoryStore::new());
    let engine = Engine::builder(store.clone()).local_cache(LocalCache::new());
    let engine = engine.build().unwrap();
    pays(pay(&engine, 0)).await;
    let cache = || engine.local_cache_stats().expect("there is a cache");
    until("the cache opens", || cache().is_open).await;
    // Without a fingerprint it would not be kept.
    let pay = |engine: &Engine| pay(engine, 7).fingerprint(&"asked");
    pays(pay(&engine)).await;
    let sent = store.log().len();
    let local = engine.clone();
    take_turns(move |_| pays(pay(&local))).await;
    assert_eq!(store.log().len(), sent, "all of them are local");
}

/// Without a runtime there is no other task.
#[test]
fn without_a_runtime_calls_go_on() {
    let engine = Engine::new(MemoryStore::new());
    for _ in 0..1_000 {
        let call = pay(&engine, 7).run(|_| async { Ok::<_, PayError>(1) });
        let mut call = std::pin::pin!(call);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert_eq!(call.as_mut().poll(&mut cx), std::task::Poll::Ready(Ok(1)));
    }
}
