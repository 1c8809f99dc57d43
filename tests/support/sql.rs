//! The SQL stores as fixtures of the conformance suite.

use std::sync::Arc;
use std::time::Duration;

use idem_conformance::{BoxFuture, Fixture, Plant};
use idem_runtime::store::sql::{Backend, IntoSqlSource, SqlStore, SqlStoreBuilder};
use idem_runtime::store::{RecordKey, Store};

use crate::shop::PATIENCE;

/// A store for tests that are not about time: it waits for as long as a busy machine takes.
pub async fn connect<B: Backend>(source: impl IntoSqlSource<B>) -> SqlStore<B> {
    let store = SqlStore::builder(source).response_timeout(PATIENCE);
    store.connect().await.expect("the database is up")
}

/// A table of its own in a database.
#[derive(Debug)]
pub struct InSql<B: Backend>(SqlStore<B>);

impl<B: Backend> InSql<B> {
    /// A fixture whose records are in a table named after the case.
    pub async fn new(store: SqlStoreBuilder<B>, shape: &str, case: &str) -> Self {
        let store = store.table(table(shape, case)).connections(4);
        let store = store.response_timeout(PATIENCE);
        let store = store.connect().await.expect("the database is up");
        store.migrate().await.expect("the table is created");
        Self(store)
    }
}

/// Other stores may use the same server. Names of cases are sentences, some of them long with a common prefix.
fn table(shape: &str, case: &str) -> String {
    let hash = shape
        .bytes()
        .chain(case.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let name = case.chars().filter(char::is_ascii_alphanumeric).take(20);
    format!("t_{}_{hash:016x}", name.collect::<String>())
}

const UP: &str = "the database is up, and nobody else is in this table";

impl<B: Backend> Fixture for InSql<B> {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn prefix(&self) -> Arc<str> {
        "a prefix".into()
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.0.age(by).await.expect(UP) })
    }

    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            // Every row expires, and columns are typed, so no other kind of plant exists.
            let Plant::Bytes { bytes, life } = plant else {
                return false;
            };
            self.0.plant(key, &bytes, life).await.expect(UP);
            true
        })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move { self.0.peek(key).await.expect(UP) })
    }

    fn drift(&self) -> Duration {
        PATIENCE
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}
