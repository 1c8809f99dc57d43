//! The pool of `mysql_async`, whose connections come with a transaction.

use idem_runtime::store::sql::{
    Dialect, SqlError, SqlFuture, SqlReceiver, SqlReply, SqlSession, SqlStatement, SqlTransaction,
};
use mysql_async::{DriverError, Error, Pool, Transaction, TxOpts};

use super::{TxPool, TxPoolError};

/// A transaction of the pool. To idem it begins with [`begin`](SqlSession::begin), and then it is there to its end.
#[allow(unnameable_types, reason = "a handler gets the transaction in it")]
pub struct PoolTransaction {
    /// `None`: it has ended, or is about to.
    tx: Option<Transaction<'static>>,
    is_begun: bool,
}

impl std::fmt::Debug for PoolTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolTransaction").finish_non_exhaustive()
    }
}

#[diagnostic::do_not_recommend]
impl TxPool for Pool {
    type Tx = PoolTransaction;
    type Handle = Transaction<'static>;

    async fn acquire(&self) -> Result<Self::Tx, TxPoolError> {
        match self.start_transaction(TxOpts::default()).await {
            Ok(tx) => Ok(PoolTransaction {
                tx: Some(tx),
                is_begun: false,
            }),
            Err(Error::Driver(error @ DriverError::PoolDisconnected)) => {
                Err(TxPoolError::Closed(error.into()))
            }
            Err(_) => Err(TxPoolError::Busy),
        }
    }

    fn handle(tx: &mut Self::Tx) -> &mut Self::Handle {
        tx.tx.as_mut().expect("it ends after its handler")
    }
}

impl PoolTransaction {
    /// The transaction, to end it or to drop it.
    fn take(&mut self) -> Option<Transaction<'static>> {
        self.is_begun = false;
        self.tx.take()
    }

    fn session(&mut self) -> Result<&mut Transaction<'static>, SqlError> {
        let ended = || SqlError::lost("the transaction has ended");
        self.tx.as_mut().ok_or_else(ended)
    }
}

/// Maps the error of an end.
fn session_error(error: Error) -> SqlError {
    match error {
        Error::Server(error) => {
            SqlError::server(Dialect::MYSQL, error.code.to_string(), &error.message)
        }
        error => SqlError::lost(error.to_string()),
    }
}

impl SqlSession for PoolTransaction {
    fn dialect(&self) -> &'static Dialect {
        Dialect::MYSQL
    }

    fn send<'a>(
        &'a mut self,
        statement: SqlStatement<'a>,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()> {
        match self.session() {
            Ok(tx) => tx.send(statement, receive),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn script<'a>(
        &'a mut self,
        script: String,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()> {
        match self.session() {
            Ok(tx) => tx.script(script, receive),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn depth(&mut self) -> usize {
        usize::from(self.is_begun)
    }

    fn begin(&mut self) -> SqlFuture<'_, ()> {
        self.is_begun = self.tx.is_some();
        let begun = self.session().map(|_| ());
        Box::pin(async { begun })
    }

    fn commit(&mut self) -> SqlFuture<'_, ()> {
        const PROBE: i64 = 4_242;
        let tx = self.take();
        Box::pin(async {
            let mut tx = tx.ok_or_else(|| SqlError::client("the transaction has ended"))?;
            // The handler may have abandoned a message, whose reply is not that to the commit.
            let mut is_in_step = false;
            let mut receive = |reply: SqlReply<'_>| {
                if let SqlReply::Row(row) = reply {
                    is_in_step = row.int(0)? == Some(PROBE);
                }
                Ok(())
            };
            tx.script(format!("SELECT {PROBE}"), &mut receive).await?;
            if !is_in_step {
                return Err(SqlError::lost("its replies are those of earlier messages"));
            }
            tx.commit().await.map_err(session_error)
        })
    }

    fn rollback(&mut self) -> SqlFuture<'_, ()> {
        let tx = self.take();
        Box::pin(async {
            match tx {
                Some(tx) => tx.rollback().await.map_err(session_error),
                None => Ok(()),
            }
        })
    }

    fn start_rollback(&mut self) {
        self.take();
    }
}

impl SqlTransaction for PoolTransaction {
    fn session(&mut self) -> &mut (dyn SqlSession + '_) {
        self
    }

    fn give_up(&mut self) {
        self.take();
    }
}
