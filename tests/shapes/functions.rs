//! Free functions: bodies and return types.

use super::{Answer, Failure, Runs, engine, once, twice};
use idem_runtime::idempotent;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

#[idempotent]
async fn plain(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[idempotent(op = "shapes.question_mark", key = number)]
async fn question_mark(number: &str, #[idem(skip)] runs: &Runs) -> Answer<u64> {
    runs.hit();
    let number = number.parse().map_err(|_| Failure::Declined)?;
    tokio::task::yield_now().await;
    Ok(number)
}

/// A qualifier that only rustc looks at.
#[idempotent(key = order)]
#[allow(improper_ctypes_definitions)]
async extern "C" fn foreign(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

/// Written by hand, not by `#[async_trait]`.
#[idempotent(op = "shapes.boxed", key = order, entry = boxed_entry)]
fn boxed<'a>(
    order: &'a str,
    #[idem(skip)] runs: &'a Runs,
) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
    Box::pin(async move { Ok(runs.hit()) })
}

/// Its future borrows nothing, so that its own task may run it.
#[idempotent(key = order, on_cancel = finish)]
fn owned(
    order: String,
    #[idem(skip)] runs: Arc<Runs>,
) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
    drop(order);
    Box::pin(async move { Ok(runs.hit()) })
}

#[tokio::test]
async fn functions_without_async_or_of_another_abi() {
    once("foreign", async |runs| foreign(1, runs).await).await;
    once("boxed", async |runs| boxed("1", runs).await).await;
    let (engine, runs) = (engine(), Arc::new(Runs::default()));
    let both = async {
        assert!(boxed_entry("1", &runs).await.expect("a store").is_none());
        for _ in 0..2 {
            assert_eq!(owned("1".to_owned(), Arc::clone(&runs)).await, Ok(1));
        }
    };
    engine.scope(both).await;
}

#[allow(clippy::todo)]
#[idempotent]
async fn unfinished(_order: u64) -> Answer {
    todo!()
}

#[tokio::test]
#[should_panic = "not yet implemented"]
async fn a_body_that_diverges_compiles() {
    let _ = engine().scope(unfinished(1)).await;
}

#[idempotent(key = order)]
async fn opaque(
    order: u64,
    #[idem(skip)] runs: &Runs,
) -> Result<impl Debug + PartialEq + use<>, Failure> {
    Ok(vec![runs.hit()])
}

#[tokio::test]
async fn the_value_may_be_opaque() {
    let runs = Runs::default();
    let both = async {
        let (first, second) = (opaque(1, &runs).await, opaque(1, &runs).await);
        assert_eq!(first, second);
        format!("{first:?}")
    };
    assert_eq!(engine().scope(both).await, "Ok([1])");
    assert_eq!(runs.count(), 1);
}

/// A documented, public function keeps its documentation and its attributes.
#[must_use = "and so does this"]
#[idempotent(key = order)]
pub(super) async fn decorated(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[idempotent(key = order, engine = engine)]
async fn spawned(
    order: u64,
    #[idem(skip)] engine: idem_runtime::Engine,
    #[idem(skip)] runs: Arc<Runs>,
) -> Answer {
    tokio::task::yield_now().await;
    Ok(runs.hit())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_future_moves_between_threads() {
    let (engine, runs) = (engine(), Arc::new(Runs::default()));
    let task = || tokio::spawn(spawned(1, engine.clone(), Arc::clone(&runs)));
    let (first, second) = (task(), task());
    assert_eq!(first.await.expect("no panic"), Ok(1));
    assert_eq!(second.await.expect("no panic"), Ok(1));
    assert_eq!(runs.count(), 1);
}

async fn buffer() -> usize {
    let bytes = [1_u8; 4096];
    tokio::task::yield_now().await;
    bytes.iter().map(|byte| usize::from(*byte)).sum()
}

#[idempotent(key = order)]
async fn large(order: u64) -> Answer {
    Ok(buffer().await)
}

/// By value, the body would be in the future twice.
#[test]
fn the_body_is_held_once() {
    let (plain, wrapped) = (size_of_val(&buffer()), size_of_val(&large(1)));
    assert!(wrapped < 2 * plain, "{wrapped} bytes around {plain}");
}

#[tokio::test]
async fn bodies_and_return_types_of_every_kind() {
    #[idempotent(key = order)]
    async fn inner(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
        Ok(runs.hit())
    }

    once("inner", async |runs| inner(1, runs).await).await;
    once("plain", async |runs| plain(1, runs).await).await;
    once("decorated", async |runs| decorated(1, runs).await).await;
    assert_eq!(
        twice(async |runs| question_mark("17", runs).await).await,
        Ok(17)
    );
    let declined = twice(async |runs| question_mark("x", runs).await).await;
    assert_eq!(declined, Err(Failure::Declined));
    // Another argument is another call.
    let runs = Runs::default();
    let both = async { (plain(1, &runs).await, plain(2, &runs).await) };
    assert_eq!(engine().scope(both).await, (Ok(1), Ok(2)));
}
