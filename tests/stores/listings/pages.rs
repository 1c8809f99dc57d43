//! Pages, filters, counts and cursors, and their use by an operator.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use idem_harness::{MariaDbServer, PostgresServer, RedisServer, TestDir};
use idem_runtime::clock::ManualClock;
use idem_runtime::store::Store;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::{Backend, MySqlStore, PostgresStore, SqlStoreBuilder, SqliteStore};
use idem_runtime::{
    Engine, ErrorKind,
    admin::{Entries, EntryFilter, EntryState},
    key::KeyDigest,
};
use idem_tests::shop::{PATIENCE, patiently};

use crate::filled::{Fate, PREFIX, RECORDS, digests, engine, fate, fill, operation};

/// Every entry, and the number of entries returned again by a later page.
async fn all(mut entries: Entries, page_size: usize) -> (Vec<KeyDigest>, usize) {
    let (mut found, mut again) = (BTreeSet::new(), 0);
    let mut is_over = false;
    while let Some(page) = entries.next_page().await.unwrap() {
        assert!(!is_over, "only the last page has room left");
        // Redis returns all keys of one bucket of its table.
        assert!(page.entries().len() <= page_size + 16);
        assert_eq!(page.unreadable(), 0);
        is_over = page.entries().len() < page_size;
        assert!(page.cursor().is_none() || !is_over);
        for entry in page {
            again += usize::from(!found.insert(*entry.key()));
        }
    }
    (found.into_iter().collect(), again)
}

/// `connect` makes another client of the same store, as another process has it.
async fn everything_is_listed<F: Future<Output = Arc<dyn Store>>>(connect: impl Fn() -> F) {
    let store = connect().await;
    fill(&store, PREFIX, 0..RECORDS).await;
    fill(&store, "shop-2", 0..200).await;
    until_expired(&store).await;
    let engine = engine(store);
    every_record_is_in_a_page(&engine).await;
    every_count_is_right(&engine).await;
    cursors_go_on_elsewhere(&connect).await;
    an_operator_settles_listed_records(&engine).await;
}

/// The short-lived records were written long ago, but the last of them may still exist.
async fn until_expired(store: &Arc<dyn Store>) {
    let engine = engine(Arc::clone(store));
    let kept = u64::try_from(digests(|number| fate(number) != Fate::Expired).len()).unwrap();
    let counted = async {
        while engine.entries().count().await.unwrap() != kept {
            tokio::task::yield_now().await;
        }
    };
    patiently("no expired record is listed", counted).await;
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

async fn cursors_go_on_elsewhere<F: Future<Output = Arc<dyn Store>>>(connect: impl Fn() -> F) {
    let mut found = BTreeSet::new();
    let mut cursor: Option<String> = None;
    loop {
        let engine = engine(connect().await);
        let unknown = engine
            .entries()
            .operation("pay")
            .state(EntryFilter::Unknown);
        let mut unknown = match &cursor {
            Some(cursor) => unknown.page_size(30).after(cursor.clone()),
            None => unknown.page_size(30),
        };
        let Some(page) = unknown.next_page().await.unwrap() else {
            break;
        };
        cursor = page.cursor().map(str::to_owned);
        found.extend(page.into_iter().map(|entry| *entry.key()));
        let Some(cursor) = &cursor else { break };
        assert!(cursor.len() <= 200, "{cursor}");
        let mut other = engine.entries().operation("refund").after(cursor.clone());
        let error = other.next_page().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidCursor);
    }
    let found: Vec<_> = found.into_iter().collect();
    assert!(found == digests(|number| operation(number) == "pay" && fate(number) == Fate::Unknown));
}

async fn an_operator_settles_listed_records(engine: &Engine) {
    let unknown = || {
        engine
            .entries()
            .operation("refund")
            .state(EntryFilter::Unknown)
    };
    let page = unknown().page_size(2).next_page().await.unwrap().unwrap();
    let [landed, failed] = <[_; 2]>::try_from(page.into_entries()).unwrap();
    assert_eq!(
        (landed.operation(), landed.state()),
        ("refund", EntryState::Unknown)
    );
    let shown = format!("{}", landed.key());
    landed.resolve(&7_u32).await.unwrap();
    failed.reset().await.unwrap();
    assert_eq!(unknown().count().await.unwrap(), 98);
    let settled = engine.entry("refund", &shown).await.unwrap().unwrap();
    assert!(matches!(settled.state(), EntryState::Answered(_)));
    let answered = engine.entries().state(EntryFilter::Answered);
    assert_eq!(answered.count().await.unwrap(), 1);
    let released = engine.entries().state(EntryFilter::Released);
    assert_eq!(released.count().await.unwrap(), 1);
}

fn share(store: impl Store) -> Arc<dyn Store> {
    Arc::new(store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_listed_in_memory() {
    let store = MemoryStore::new();
    everything_is_listed(async || share(store.clone())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_listed_in_redis() {
    let server = RedisServer::start();
    let connect = async || {
        let store = RedisStore::builder(server.url()).response_timeout(PATIENCE);
        share(store.connect().await.unwrap())
    };
    everything_is_listed(connect).await;
}

async fn everything_is_listed_in_sql<B: Backend>(store: impl Fn() -> SqlStoreBuilder<B>) {
    let made = OnceLock::new();
    let connect = async || {
        let store = store().response_timeout(PATIENCE).connect().await.unwrap();
        if made.set(()).is_ok() {
            store.migrate().await.unwrap();
        }
        share(store)
    };
    everything_is_listed(connect).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_listed_in_sqlite() {
    let dir = TestDir::new("listings").unwrap();
    let url = format!("sqlite:{}?mode=rwc", dir.path().join("idem.db").display());
    everything_is_listed_in_sql(|| SqliteStore::builder(&*url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_listed_in_postgres() {
    let server = PostgresServer::start();
    everything_is_listed_in_sql(|| PostgresStore::builder(server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_listed_in_mariadb() {
    let server = MariaDbServer::start();
    everything_is_listed_in_sql(|| MySqlStore::builder(server.url())).await;
}

#[tokio::test]
async fn a_record_is_listed_until_its_life_is_over() {
    let clock = ManualClock::new();
    let store = share(MemoryStore::builder().clock(clock.clone()).build());
    fill(&store, PREFIX, 0..100).await;
    let engine = engine(store);
    let count = async || engine.entries().count().await.unwrap();
    assert_eq!(count().await, 100);
    clock.advance(Duration::from_millis(2));
    assert_eq!(count().await, 99, "one lives for two milliseconds");
    let hours = Duration::from_hours(24);
    clock.advance(hours.saturating_sub(Duration::from_millis(3)));
    assert_eq!(count().await, 99);
    clock.advance(Duration::from_millis(1));
    assert_eq!(count().await, 0);
}
