//! Warnings to an operator about a fast store with other writers.

use std::future::pending;

use idem_runtime::store::layered::LayeredStore;
use idem_runtime::{Engine, EngineBuilder, codec::EncryptionKeys};
use idem_tests::events::Events;

use crate::prelude::*;

fn warnings(
    store: impl Store,
    settings: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Vec<String> {
    let events = Events::default();
    let engine = settings(Engine::builder(store).observer(events.clone()));
    engine.build().unwrap();
    let all = events.all().into_iter();
    all.filter(|event| event.contains("can give any answer"))
        .collect()
}

/// An unconnected store may turn out to be any server.
fn shared() -> impl Store {
    let fast = LazyStore::new(pending::<Result<MemoryStore, _>>);
    LayeredStore::new(fast, MemoryStore::new())
}

#[tokio::test]
async fn a_shared_fast_store_without_encryption_is_warned_about() {
    let told = warnings(shared(), |engine| engine);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("`EngineBuilder::encrypt`"), "{told:?}");
    let keys = EncryptionKeys::new(7, [7; 32]);
    assert_eq!(warnings(shared(), |engine| engine.encrypt(keys)), [""; 0]);
    // A fast store in the process needs none.
    let private = LayeredStore::new(MemoryStore::new(), MemoryStore::new());
    assert_eq!(warnings(private, |engine| engine), [""; 0]);
    assert_eq!(warnings(MemoryStore::new(), |engine| engine), [""; 0]);
}
