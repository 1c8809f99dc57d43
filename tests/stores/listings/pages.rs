//! Pages, filters, counts and cursors.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::clock::ManualClock;
use idem_runtime::store::Store;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{
    Engine,
    admin::{Entries, EntryFilter},
    key::KeyDigest,
};

use super::filled::{Fate, PREFIX, RECORDS, digests, engine, fate, fill, operation};

/// Every entry, and the number of entries that two pages return.
async fn all(mut entries: Entries, page_size: usize) -> (Vec<KeyDigest>, usize) {
    let (mut found, mut again) = (BTreeSet::new(), 0);
    let mut is_over = false;
    while let Some(page) = entries.next_page().await.unwrap() {
        assert!(!is_over, "only the last page has room left");
        assert!(page.entries().len() <= page_size);
        assert_eq!(page.unreadable(), 0);
        is_over = page.entries().len() < page_size;
        assert!(page.cursor().is_none() || !is_over);
        for entry in page {
            again += usize::from(!found.insert(*entry.key()));
        }
    }
    (found.into_iter().collect(), again)
}

/// Every page, count and cursor; the conformance suite lists every store.
#[tokio::test]
async fn everything_is_listed() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let store: Arc<dyn Store> = Arc::new(store);
    fill(&store, PREFIX, 0..RECORDS).await;
    fill(&store, "shop-2", 0..200).await;
    clock.advance(Duration::from_millis(2));
    let engine = engine(store);
    every_record_is_in_a_page(&engine).await;
    every_count_is_right(&engine).await;
    let count = async || engine.entries().count().await.unwrap();
    assert_eq!(
        count().await,
        9_900,
        "one in a hundred lives for two milliseconds"
    );
    let hours = Duration::from_hours(24);
    clock.advance(hours.saturating_sub(Duration::from_millis(3)));
    assert_eq!(count().await, 9_900);
    clock.advance(Duration::from_millis(1));
    assert_eq!(count().await, 0);
}

async fn every_record_is_in_a_page(engine: &Engine) {
    for page_size in [37, 1_000] {
        let of_pay = engine.entries().operation("pay").page_size(page_size);
        let (found, again) = all(of_pay, page_size).await;
        let expected =
            digests(|number| operation(number) == "pay" && fate(number) != Fate::Expired);
        assert!(found == expected, "{} of {}", found.len(), expected.len());
        assert_eq!(again, 0, "nothing has changed");
    }
    let unknown = engine.entries().state(EntryFilter::Unknown).page_size(60);
    let (found, _) = all(unknown, 60).await;
    assert!(
        found == digests(|number| fate(number) == Fate::Unknown),
        "of every operation"
    );
    let abandoned = engine
        .entries()
        .operation("pay")
        .state(EntryFilter::Abandoned);
    let (found, _) = all(abandoned, 100).await;
    assert!(found == digests(|number| fate(number) == Fate::Abandoned));
}

async fn every_count_is_right(engine: &Engine) {
    let count = async |entries: Entries| entries.count().await.unwrap();
    let entries = || engine.entries();
    assert_eq!(count(entries()).await, 9_900);
    assert_eq!(count(entries().operation("refund")).await, 1_000);
    assert_eq!(count(entries().operation("ref")).await, 0);
    let unknown = || entries().state(EntryFilter::Unknown);
    assert_eq!(count(unknown()).await, 200);
    assert_eq!(count(unknown().operation("pay")).await, 100);
    assert_eq!(count(entries().state(EntryFilter::Running)).await, 9_600);
    assert_eq!(count(entries().state(EntryFilter::Answered)).await, 0);
    let exhausted = || entries().state(EntryFilter::Exhausted);
    assert_eq!(count(exhausted()).await, 0, "five attempts each");
    assert_eq!(count(exhausted().min_attempts(NonZeroU16::MIN)).await, 100);
    let two = NonZeroU16::new(2).unwrap();
    assert_eq!(count(entries().min_attempts(two)).await, 0);
}
