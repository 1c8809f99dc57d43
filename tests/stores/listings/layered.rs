//! Two stores as one: the durable one is listed.

use std::time::Duration;

use idem_runtime::admin::EntryFilter;
use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Error, admin::Entries};

use super::filled::engine;

#[tokio::test]
async fn the_durable_store_is_listed_without_records_of_the_layers() {
    let (fast, durable) = (MemoryStore::new(), MemoryStore::new());
    let layers = LayeredStore::builder(fast, durable.clone()).trust(Duration::from_millis(1));
    let (engine, below) = (engine(layers.build()), engine(durable));
    let call = |key: u32| engine.operation("pay").key(&key);
    for key in 0..3 {
        let answer = call(key).run(async |_| Ok::<_, Error>(7_u32));
        answer.await.unwrap();
    }
    // A reset begins a new epoch, which is a record as well.
    let entry = call(0).entry().await.unwrap().unwrap();
    entry.reset().await.unwrap();
    let count = async |entries: Entries| entries.count().await.unwrap();
    assert_eq!(count(below.entries()).await, 4, "with the epoch");
    assert_eq!(count(engine.entries()).await, 3);
    let of = |state| count(engine.entries().state(state));
    assert_eq!(of(EntryFilter::Released).await, 1);
    assert_eq!(of(EntryFilter::Answered).await, 2);
}
