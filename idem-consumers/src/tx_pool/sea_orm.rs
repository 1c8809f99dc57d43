//! Transactions of sea-orm, each begun by a consumer.

use std::fmt;

use idem_runtime::store::sql::{
    Dialect, SqlError, SqlFuture, SqlReceiver, SqlSession, SqlStatement, SqlTransaction,
};
use sea_orm::{
    ConnAcquireErr, ConnectionTrait as _, DatabaseBackend, DatabaseConnection, DatabaseTransaction,
    DbErr, RuntimeErr, TransactionTrait as _,
};

use super::{TxPool, TxPoolError};

/// A transaction of sea-orm, begun by its pool.
#[allow(unnameable_types, reason = "a handler gets the transaction in it")]
pub struct SeaOrmTx {
    /// `None` after its end.
    tx: Option<DatabaseTransaction>,
    dialect: &'static Dialect,
    is_sqlite: bool,
    /// 1 from [`begin`](SqlSession::begin) until its end.
    depth: usize,
}

impl fmt::Debug for SeaOrmTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeaOrmTx").finish_non_exhaustive()
    }
}

fn is_over() -> SqlError {
    SqlError::lost("this transaction is over")
}

impl SeaOrmTx {
    /// Ends the transaction, and gives its connection back.
    ///
    /// By a text: a transaction that the handler has begun within and left open makes sea-orm's own commit that of a
    /// savepoint. The next transaction is empty, and for sea-orm to roll back.
    async fn end(&mut self, text: &str) -> Result<(), SqlError> {
        let tx = self.tx.as_mut().ok_or_else(is_over)?;
        tx.script(format!("{text}; BEGIN"), &mut |_| Ok(())).await?;
        self.tx = None;
        self.depth = 0;
        Ok(())
    }
}

impl SqlSession for SeaOrmTx {
    fn dialect(&self) -> &'static Dialect {
        self.dialect
    }

    fn send<'a>(
        &'a mut self,
        statement: SqlStatement<'a>,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()> {
        match &mut self.tx {
            Some(tx) => tx.send(statement, receive),
            None => Box::pin(async { Err(is_over()) }),
        }
    }

    fn script<'a>(
        &'a mut self,
        script: String,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()> {
        match &mut self.tx {
            Some(tx) => tx.script(script, receive),
            None => Box::pin(async { Err(is_over()) }),
        }
    }

    fn depth(&mut self) -> usize {
        self.depth
    }

    fn begin(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(async move {
            self.tx.as_ref().ok_or_else(is_over)?;
            self.depth = 1;
            Ok(())
        })
    }

    fn commit(&mut self) -> SqlFuture<'_, ()> {
        // PostgreSQL replies to the commit of a failed transaction with a rollback, and to the query with an error.
        Box::pin(self.end("SELECT 1; COMMIT"))
    }

    fn rollback(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(self.end("ROLLBACK"))
    }

    /// sea-orm starts it where the transaction is dropped.
    fn start_rollback(&mut self) {
        if self.is_sqlite {
            // SQLite may have rolled back by itself, and would refuse another rollback.
            self.start_script("BEGIN".to_owned());
        }
        self.tx = None;
        self.depth = 0;
    }

    fn start_script(&mut self, script: String) {
        if let Some(tx) = &mut self.tx {
            tx.start_script(script);
        }
    }

    fn in_step(&mut self, most: usize) -> SqlFuture<'_, bool> {
        match &mut self.tx {
            Some(tx) => tx.in_step(most),
            None => Box::pin(async { Err(is_over()) }),
        }
    }

    fn close(&mut self) -> SqlFuture<'_, ()> {
        match &mut self.tx {
            Some(tx) => tx.close(),
            None => Box::pin(async { Ok(()) }),
        }
    }
}

impl SqlTransaction for SeaOrmTx {
    fn session(&mut self) -> &mut (dyn SqlSession + '_) {
        self
    }
}

#[diagnostic::do_not_recommend]
impl TxPool for DatabaseConnection {
    type Tx = SeaOrmTx;
    type Handle = DatabaseTransaction;

    async fn acquire(&self) -> Result<SeaOrmTx, TxPoolError> {
        // In a task, so that it is not dropped half-way: its connection would return with an open transaction.
        let db = self.clone();
        let begun = tokio::spawn(async move { db.begin().await }).await;
        let begun = begun.map_err(|_| TxPoolError::Busy)?;
        let tx = begun.map_err(|error| match error {
            // A pool that was never connected, or is closed.
            DbErr::Conn(RuntimeErr::Internal(_))
            | DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed) => {
                TxPoolError::Closed(error.into())
            }
            _ => TxPoolError::Busy,
        })?;
        Ok(SeaOrmTx {
            dialect: tx.dialect(),
            is_sqlite: tx.get_database_backend() == DatabaseBackend::Sqlite,
            tx: Some(tx),
            depth: 0,
        })
    }

    fn handle(tx: &mut SeaOrmTx) -> &mut DatabaseTransaction {
        tx.tx.as_mut().expect("its body runs")
    }
}
