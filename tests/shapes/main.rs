//! Every function shape that `#[idempotent]` supports, each called twice: the body runs once and
//! both calls get its answer. `edition_2021` builds the same files in edition 2021.

#![deny(warnings, clippy::pedantic, clippy::nursery)]
#![forbid(unsafe_code)]
// It requires the `pub` that `unreachable_pub` forbids.
#![allow(clippy::redundant_pub_crate)]

mod arguments;
mod attributes;
mod chosen_lives;
mod classes;
mod endings;
mod entries;
mod format_strings;
mod functions;
mod hygiene;
mod labels;
mod methods;
mod reconcile;
mod reconcile_methods;
mod traits;
mod transactions;

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Classify, Engine, Error};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Counts the bodies that ran. It is not part of a request.
#[derive(Debug, Default)]
struct Runs(AtomicUsize);

impl Runs {
    /// Number of runs, this one included: a second run would give another answer.
    fn hit(&self) -> usize {
        self.0.fetch_add(1, SeqCst) + 1
    }

    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

#[derive(Classify, Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
enum Failure {
    #[class(business)]
    Declined,
    #[class(system)]
    Refused(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error.to_string())
    }
}

type Answer<T = usize> = Result<T, Failure>;

fn engine() -> Engine {
    Engine::builder(MemoryStore::new())
        .build()
        .expect("the defaults agree")
}

/// Makes the call of this function [`twice`]: it answers that it ran once.
async fn once(name: &str, call: impl AsyncFnMut(&Runs) -> Answer) {
    assert_eq!(twice(call).await, Ok(1), "{name}");
}

/// Makes the call twice on an engine of its own: the body runs once, and both get its answer.
async fn twice<T>(mut call: impl AsyncFnMut(&Runs) -> Answer<T>) -> Answer<T>
where
    T: PartialEq + std::fmt::Debug,
{
    let runs = Runs::default();
    let both = async {
        let first = call(&runs).await;
        let second = call(&runs).await;
        assert_eq!(first, second);
        assert_eq!(runs.count(), 1, "the body runs once");
        first
    };
    engine().scope(both).await
}
