//! Cost of a call besides its body: allocations, and size of the caller's future.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use allocation_counter::{AllocationInfo, measure};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, idempotent};
use idem_tests::payment::PayError;

const MERCHANT: &str = "merchant-7";

#[idempotent(op = "costs.sum", key = (MERCHANT, number), engine = engine)]
async fn sum(number: u64, #[idem(skip)] engine: &Engine) -> Result<u64, PayError> {
    Ok(number + 1)
}

#[idempotent(op = "costs.greet", key = number, engine = engine)]
async fn greet(number: u64, #[idem(skip)] engine: &Engine) -> Result<String, PayError> {
    Ok(format!("hello, number {number}"))
}

#[idempotent(op = "costs.print", scope = "house-{MERCHANT}", key = "{number}/{copy:>4}", engine = engine)]
async fn print(number: u64, copy: u8, #[idem(skip)] engine: &Engine) -> Result<u64, PayError> {
    Ok(number + u64::from(copy))
}

/// Polls once, because a memory store answers immediately.
fn at_once<F: Future>(future: Pin<&mut F>) -> F::Output {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a call on a memory store waits for nothing"),
    }
}

/// Allocations of a replay, without the one-time set-up of the first calls.
fn replayed<T, F: Future<Output = Result<T, PayError>>>(call: impl Fn() -> F) -> AllocationInfo {
    for _ in 0..3 {
        assert!(at_once(pin!(call())).is_ok());
    }
    measure(|| {
        let answer = at_once(pin!(call()));
        assert!(answer.is_ok());
    })
}

#[test]
fn a_replay_from_a_memory_store_allocates_nothing_but_the_value() {
    let engine = Engine::new(MemoryStore::new());
    let number = replayed(|| sum(7, &engine));
    assert_eq!(number.count_total, 0, "a number has no heap: {number:?}");
    let formatted = replayed(|| print(7, 1, &engine));
    assert_eq!(
        formatted.count_total, 0,
        "no text is made of the key: {formatted:?}"
    );
    let text = replayed(|| greet(7, &engine));
    assert_eq!(text.count_total, 1, "the text itself: {text:?}");
    assert_eq!(text.bytes_total, "hello, number 7".len() as u64);
}

/// Lease, context, record and its answer, claim and completion: a new allocation should be noticed.
#[test]
fn a_first_call_on_a_memory_store_allocates_a_handful() {
    let engine = Engine::new(MemoryStore::new());
    for number in 0..100 {
        assert!(at_once(pin!(sum(number, &engine))).is_ok());
    }
    let cost = measure(|| {
        for number in 100..150 {
            assert!(at_once(pin!(sum(number, &engine))).is_ok());
        }
    });
    // The maps of the store grow now and then.
    assert!(cost.count_total <= 50 * 9, "{cost:?}");
}

/// A body that holds a kilobyte while it waits.
async fn work(seed: u8) -> Result<u64, PayError> {
    let room = [seed; 1024];
    tokio::task::yield_now().await;
    Ok(room.iter().map(|byte| u64::from(*byte)).sum())
}

#[idempotent(op = "costs.work", key = seed, engine = engine)]
async fn work_once(seed: u8, #[idem(skip)] engine: &Engine) -> Result<u64, PayError> {
    work(seed).await
}

#[test]
fn the_future_of_a_call_is_little_larger_than_its_body() {
    let engine = Engine::new(MemoryStore::new());
    let (bare, call) = (size_of_val(&work(1)), size_of_val(&work_once(1, &engine)));
    assert!(bare > 1024, "the body holds its room: {bare} bytes");
    assert!(call <= bare + 512, "{call} bytes around a body of {bare}");
}

#[idempotent(op = "costs.sign", key = number, label = "number {number}", engine = engine)]
async fn sign(number: u64, #[idem(skip)] engine: &Engine) -> Result<u64, PayError> {
    Ok(number + 1)
}

/// A label is one allocation, whether it is stored or not; without one there is none.
#[test]
fn a_label_is_one_allocation() {
    let engine = Engine::new(MemoryStore::new());
    let signed = replayed(|| sign(7, &engine));
    assert_eq!(signed.count_total, 1, "{signed:?}");
}
