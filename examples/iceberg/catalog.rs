//! The catalog: a database, and the engine whose records are in it.

use std::error::Error;
use std::sync::Arc;

use idem_runtime::Engine;
use idem_runtime::store::sql::{PostgresStore, Purge, PurgeTask};
use sqlx::PgPool;

/// A namespace is its path as text; the unit separator separates levels.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS namespaces (name text PRIMARY KEY, properties json NOT NULL);
CREATE TABLE IF NOT EXISTS tables (
    namespace text NOT NULL REFERENCES namespaces,
    name text NOT NULL,
    commits bigint NOT NULL,
    metadata json NOT NULL,
    PRIMARY KEY (namespace, name)
)";

/// The longest answer of a mutation: metadata grows with its snapshots.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The catalog of one warehouse.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub(crate) pool: PgPool,
    pub(crate) engine: Engine,
    /// The location of tables that name none, such as `file:///srv/warehouse`.
    pub(crate) warehouse: Arc<str>,
    _purge: Arc<PurgeTask>,
}

impl Catalog {
    /// Opens the catalog in a database, and creates missing tables.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub async fn open(url: &str, warehouse: &str) -> Result<Self, Box<dyn Error>> {
        let pool = PgPool::connect(url).await?;
        sqlx::raw_sql(SCHEMA).execute(&pool).await?;
        let store = PostgresStore::connect(&pool).await?;
        store.migrate().await?;
        let purge = store.spawn_purge(Purge::default());
        let engine = Engine::builder(store).max_value_bytes(MAX_ANSWER_BYTES);
        Ok(Self {
            pool,
            engine: engine.build()?,
            warehouse: warehouse.into(),
            _purge: Arc::new(purge),
        })
    }
}
