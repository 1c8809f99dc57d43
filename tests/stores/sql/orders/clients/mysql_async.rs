//! `mysql_async`.

use idem_runtime::store::StoreError;
use idem_runtime::store::sql::{MySql, MySqlStore};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, Transaction, TxOpts};

use super::{CONNECTIONS, Client, ClientError};

pub(crate) struct InMySqlAsync;

impl Client for InMySqlAsync {
    type Backend = MySql;
    type Pool = Pool;
    type Tx<'t> = Transaction<'t>;

    fn pool(url: &str) -> Pool {
        let constraints = PoolConstraints::new(0, CONNECTIONS as usize).expect("it has room");
        let pool = PoolOpts::default().with_constraints(constraints);
        let opts = OptsBuilder::from_opts(Opts::from_url(url).expect("a URL"));
        Pool::new(opts.pool_opts(pool))
    }

    async fn store(_: &str, pool: &Pool) -> Result<MySqlStore, StoreError> {
        MySqlStore::connect(pool).await
    }

    async fn change(tx: &mut Self::Tx<'_>, sql: String) -> Result<u64, ClientError> {
        tx.query_drop(sql).await?;
        Ok(tx.affected_rows())
    }

    async fn in_transaction<T>(
        pool: &Pool,
        work: impl AsyncFnOnce(&mut Self::Tx<'_>) -> (T, bool),
    ) -> Result<T, ClientError> {
        let mut tx = pool.start_transaction(TxOpts::default()).await?;
        let (value, commits) = work(&mut tx).await;
        if commits {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        Ok(value)
    }
}
