//! The printed history compiles, fails on the flawed store and passes otherwise.

#![allow(
    clippy::unwrap_used,
    unused_qualifications,
    reason = "the printed code, as it is pasted"
)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idem_conformance::{BoxFuture, Fixture, History, Plant, replay, sequences};
use idem_runtime::clock::ManualClock;
use idem_runtime::store::author::{
    Journal, Owner, ReadReply, ReleaseReply, Remains, State, StoreFuture,
};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{RecordKey, Store};
use idem_runtime::testing::Forward;
use tokio::runtime::{Builder, Runtime};

include!("golden/history.rs");

struct Release<'a> {
    key: &'a RecordKey,
    is_own: bool,
    /// Whether the key has been released already.
    is_again: bool,
    /// How many of this store came before.
    number: u64,
}

/// Whether a store refuses the owner's release, or obeys another owner's.
type Flaw = fn(&Release<'_>) -> bool;

const NONE: Flaw = |_| false;
const FOREIGN: Flaw = |release| !release.is_own;
const SOME_KEYS: Flaw = |release| !release.is_own && release.key.digest().as_bytes()[0] >= 0xc0;
const SEVENTH: Flaw = |release| release.number % 7 == 6;
const AGAIN: Flaw = |release| release.is_own && release.is_again;
const PANICS: Flaw = |release| !release.is_own && panic!("no owner of {:?}", release.key);

/// A memory store with a flaw.
#[derive(Clone, Debug)]
struct Flawed {
    flaw: Flaw,
    store: MemoryStore,
    clock: ManualClock,
    releases: Arc<AtomicU64>,
}

fn with(flaw: Flaw) -> Arc<dyn Fixture> {
    let clock = ManualClock::new();
    Arc::new(Flawed {
        flaw,
        store: MemoryStore::builder().clock(clock.clone()).build(),
        clock,
        releases: Arc::default(),
    })
}

impl Forward for Flawed {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journals: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::pending(async move {
            let ReadReply::Found { record, .. } = self.store.read(key).await? else {
                return (self.store).release(key, owner, remains, journals).await;
            };
            let release = Release {
                key,
                is_own: record.header.owner == *owner,
                is_again: record.header.state == State::Released,
                number: self.releases.fetch_add(1, Ordering::Relaxed),
            };
            match (self.flaw)(&release) {
                true if release.is_own => Ok(ReleaseReply::Superseded),
                true => {
                    (self.store)
                        .release(key, &record.header.owner, remains, journals)
                        .await
                }
                false => (self.store).release(key, owner, remains, journals).await,
            }
        })
    }
}

impl Fixture for Flawed {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn prefix(&self) -> Arc<str> {
        "flawed".into()
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(by);
        Box::pin(async {})
    }

    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
        let Plant::Bytes { bytes, life } = plant else {
            return Box::pin(async { false });
        };
        self.store.plant(key, bytes.into(), life);
        Box::pin(async { true })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        let bytes = self.store.peek(key);
        Box::pin(async { bytes.map(Into::into) })
    }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().build();
    runtime.expect("a runtime starts")
}

fn found(flaw: Flaw, seeds: Range<u64>) -> Result<(), History> {
    runtime().block_on(sequences(with(flaw), seeds))
}

/// Repeats a printed history on an empty store.
fn repeated(history: &History, flaw: Flaw) -> Result<(), History> {
    let printed = history.to_string();
    let call = printed.split_once("replay(fixture.clone(), \"");
    let mut words = call.expect("it repeats itself").1.split("\", ");
    let theme = words.next().expect("a name");
    let keys = words.next().and_then(|rest| rest.split(',').next());
    let keys = keys.and_then(|keys| keys.parse().ok()).expect("a number");
    let operation = |line: &str| {
        let bytes = line.trim().strip_prefix('[')?.strip_suffix("],")?;
        let bytes: Vec<u8> = bytes.split(", ").flat_map(str::parse).collect();
        <[u8; 16]>::try_from(bytes).ok()
    };
    let operations: Vec<_> = printed.lines().filter_map(operation).collect();
    runtime().block_on(replay(with(flaw), theme, keys, &operations))
}

/// Every history is printed so that it can be pasted. `IDEM_GOLDEN=overwrite` writes the golden anew.
#[test]
fn the_shortest_history_is_printed_as_code() {
    let sound = found(NONE, 0..50);
    assert!(sound.is_ok(), "{}", sound.unwrap_err());
    let history = found(FOREIGN, 0..50).expect_err("a release by another owner is found");
    if std::env::var_os("IDEM_GOLDEN").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/history.rs");
        std::fs::write(file, history.to_string()).expect("the golden can be written");
    }
    assert_eq!(history.to_string(), include_str!("golden/history.rs"));
    assert_eq!(format!("{history:?}"), history.to_string());
}

#[test]
fn the_printed_code_passes_on_a_right_store() {
    runtime().block_on(history(&with(NONE)));
}

#[test]
#[should_panic(expected = "Superseded")]
fn the_printed_code_fails_on_the_store_in_which_it_was_found() {
    runtime().block_on(history(&with(FOREIGN)));
}

#[test]
fn the_shortest_history_fails_on_an_empty_store() {
    let flaws = [
        (FOREIGN, 590..740, 2),
        (SOME_KEYS, 0..100, 2),
        (AGAIN, 0..1_000, 3),
        (PANICS, 0..60, 2),
    ];
    for (flaw, seeds, calls) in flaws {
        let found = |seed| found(flaw, seed..seed + 1).err();
        let histories: Vec<_> = seeds.filter_map(found).collect();
        assert!(histories.len() > 5, "{} of {calls}", histories.len());
        for history in histories {
            assert_eq!(history.calls(), calls, "{history}");
            let again = repeated(&history, flaw).expect_err(&history.to_string());
            assert_eq!(again.calls(), calls, "{again}");
        }
    }
}

/// Each seventh release fails, on whatever keys: the printed code repeats the seeds up to that one.
#[test]
fn what_came_before_is_repeated_where_it_counts() {
    let history = found(SEVENTH, 0..50).expect_err("the seventh release is found");
    let printed = history.to_string();
    let seeds =
        printed.split_once("let repeated = idem_conformance::sequences(fixture.clone(), 0..");
    let seeds = seeds.and_then(|(_, rest)| rest.split(')').next()?.parse().ok());
    let again = found(SEVENTH, 0..seeds.expect("it repeats the seeds")).expect_err(&printed);
    assert_eq!(again.calls(), history.calls());
    assert!(repeated(&history, SEVENTH).is_ok());
}

#[test]
fn a_panic_of_the_store_is_the_last_reply() {
    let history = found(PANICS, 0..50).expect_err("the panic is found");
    let printed = history.to_string();
    assert!(printed.contains("// observed Panicked(\"no owner of flawed:history."));
}

#[test]
#[should_panic(expected = r#"["claims", "journals", "outcomes", "notifications"]"#)]
fn another_name_of_sequences_panics_with_the_names() {
    drop(replay(with(NONE), "claim", 0, &[]));
}
