//! A store, and what its clones share.

use std::marker::PhantomData;
use std::sync::Arc;

use super::backend::Backend;
use super::dialect::Dialect;
use super::hit_rate::HitRate;
use super::pool::ConnectionPool;
use super::statement_texts::Statements;
use crate::store::observers::Observers;

/// A store in a SQL database. Clones share its connections.
///
/// It has connections of its own, up to [`connections`](super::SqlStoreBuilder::connections) of them, and two more on
/// the engine's thread for renewals and reads. A pool shared with bodies could run dry while each of them waits for its
/// claim to be completed.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use idem_runtime::{Engine, store::sql::SqliteStore};
///
/// let file = std::env::temp_dir().join("idem-example.db");
/// let store = SqliteStore::connect(format!("sqlite:{}", file.display())).await?;
/// store.migrate().await?;
/// let engine = Engine::new(store);
/// # drop(engine);
/// # Ok::<_, idem_runtime::store::StoreError>(()) }).unwrap();
/// ```
pub struct SqlStore<B: Backend>(
    pub(super) Arc<SqlStoreState>,
    pub(super) PhantomData<fn() -> B>,
);

/// The state that the clones of a store share.
pub(crate) struct SqlStoreState {
    pub(super) dialect: &'static Dialect,
    pub(super) pool: Arc<ConnectionPool>,
    /// For renewals and reads. Its connections are made on the engine's own thread.
    pub(super) engine_pool: Arc<ConnectionPool>,
    /// For listings. Its one connection is made there as well, and delays no other statement.
    pub(super) listing_pool: Arc<ConnectionPool>,
    pub(super) statements: Statements,
    pub(super) hit_rate: HitRate,
    /// Notified of steps of the database's clock.
    pub(super) observers: Arc<Observers>,
    /// The table, as its name was configured.
    pub(super) name: String,
    /// The same with its schema, which no setting of a connection changes.
    pub(super) table: String,
    /// [`Dialect::one_table`](super::dialect::Dialect::one_table) of this table; empty where its schema was configured.
    pub(super) one_table: String,
    pub(super) warnings: Vec<String>,
    /// The longest record that is read.
    pub(super) reads_bytes: usize,
}

/// Bytes of a completion besides the record: its text, its names, the protocol's overhead.
const BESIDE: usize = 8 << 10;

impl SqlStoreState {
    /// The longest record that is written.
    ///
    /// The server would refuse each completion of a longer one, and its body would run again.
    pub(super) fn max_record_bytes(&self) -> usize {
        let longest = self.pool.longest().saturating_sub(BESIDE);
        self.reads_bytes.min(longest)
    }
}

impl<B: Backend> Clone for SqlStore<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), PhantomData)
    }
}

debug_fields!([B: Backend] SqlStore<B> {
    database: |_it| B::DIALECT.name, table: |it| &it.0.table, pool: |it| &it.0.pool
});
