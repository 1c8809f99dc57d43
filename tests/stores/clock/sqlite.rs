//! The clock of SQLite is that of each process: these tests run themselves in a process with a clock of its own.

use std::sync::Arc;
use std::{env, fs};

use idem_harness::{FakeClock, TestDir, WorkerBuilder, in_own_process};
use idem_runtime::store::Store;
use idem_runtime::store::sql::Sqlite;
use idem_tests::sql::connect;
use tokio::runtime::Runtime;

use super::fixture::Fixture;

fn with_a_clock(process: WorkerBuilder) -> WorkerBuilder {
    process.clock(FakeClock::new())
}

/// Steps the clock of this process: from now on it is this many seconds ahead.
fn step(seconds: i64) {
    let file = env::var("FAKETIME_TIMESTAMP_FILE").unwrap();
    let next = format!("{file}.next");
    // Replaced atomically, because other threads read it.
    fs::write(&next, format!("{seconds:+}\n")).unwrap();
    fs::rename(next, file).unwrap();
}

async fn fixture(dir: &TestDir) -> Fixture {
    let url = format!("sqlite:{}", dir.path().join("records.db").display());
    let store = connect::<Sqlite>(url).await;
    store.migrate().await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    Fixture::on(&store)
}

#[test]
fn a_step_is_reported() {
    in_own_process(with_a_clock, || {
        Runtime::new().unwrap().block_on(async {
            let dir = TestDir::new("clock").unwrap();
            let fixture = fixture(&dir).await;
            fixture.pay_anew().await;
            assert_eq!(fixture.events.count("clock"), 0);
            step(31);
            fixture.pay_until("clock stepped forward", 1).await;
            step(0);
            fixture.pay_until("clock stepped back", 1).await;
            assert_eq!(fixture.events.count("clock"), 2);
        });
    });
}

/// Documented as a limit of leases.
#[test]
fn limit_a_step_of_more_than_the_lease_starts_a_second_body() {
    in_own_process(with_a_clock, || {
        Runtime::new().unwrap().block_on(async {
            let dir = TestDir::new("clock").unwrap();
            let (first, second) = (fixture(&dir).await, fixture(&dir).await);
            let running = first.begin("a").await;
            step(31);
            let other = second.begin("a").await;
            assert_eq!(second.events.count("claimed 2"), 1);
            other.end().await.unwrap();
            running.end().await.unwrap();
        });
    });
}
