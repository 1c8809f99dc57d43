//! Connections of deadpool-postgres and bb8-postgres, in a transaction of idem.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::task::{Context, Waker};

use idem_runtime::store::sql::{
    Dialect, SqlError, SqlFuture, SqlReceiver, SqlSession, SqlStatement, SqlTransaction,
};

use super::{TxPool, TxPoolError};

/// A connection of deadpool-postgres or bb8-postgres, in a transaction of idem.
///
/// It derefs to the client, by a shared reference alone: a second transaction, which would end the first one, needs a
/// mutable one. For a part of the work that may fail alone there is `SAVEPOINT`. Calls of idem within the handler take
/// it as their transaction.
pub struct PooledTx<C> {
    client: C,
    /// 1 in the transaction.
    depth: usize,
}

impl<C: std::fmt::Debug> std::fmt::Debug for PooledTx<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("PooledTx");
        debug.field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl<C: Deref> Deref for PooledTx<C> {
    type Target = C::Target;

    fn deref(&self) -> &C::Target {
        &self.client
    }
}

impl<C> PooledTx<C>
where
    C: DerefMut<Target: SqlSession> + Send,
{
    /// Sends a script after which the depth is this.
    async fn control(&mut self, script: &str, depth: usize) -> Result<(), SqlError> {
        let script = script.to_owned();
        self.client.script(script, &mut |_| Ok(())).await?;
        self.depth = depth;
        Ok(())
    }
}

impl<C> SqlSession for PooledTx<C>
where
    C: DerefMut<Target: SqlSession> + Send,
{
    fn dialect(&self) -> &'static Dialect {
        self.client.dialect()
    }

    fn send<'a>(
        &'a mut self,
        statement: SqlStatement<'a>,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()> {
        self.client.send(statement, receive)
    }

    fn script<'a>(
        &'a mut self,
        script: String,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()> {
        self.client.script(script, receive)
    }

    fn depth(&mut self) -> usize {
        self.depth
    }

    fn begin(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(self.control("BEGIN", 1))
    }

    // PostgreSQL rolls an aborted transaction back without an error. The statement before it fails there.
    fn commit(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(self.control("SELECT 1; COMMIT", 0))
    }

    fn rollback(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(self.control("ROLLBACK", 0))
    }

    fn start_rollback(&mut self) {
        // The first poll queues the message, in front of those of the next user of the connection.
        let rollback = self.control("ROLLBACK", 0);
        let _ = pin!(rollback).poll(&mut Context::from_waker(Waker::noop()));
        self.depth = 0;
    }
}

impl<C> SqlTransaction for PooledTx<C>
where
    C: DerefMut<Target: SqlSession> + Send,
{
    fn session(&mut self) -> &mut (dyn SqlSession + '_) {
        self
    }

    /// Behind a `BEGIN` whose future was dropped.
    fn give_up(&mut self) {
        self.start_rollback();
    }
}

fn of<C>(client: C) -> PooledTx<C> {
    PooledTx { client, depth: 0 }
}

#[cfg(feature = "deadpool-postgres")]
#[diagnostic::do_not_recommend]
impl TxPool for deadpool_postgres::Pool {
    type Tx = PooledTx<deadpool_postgres::Client>;
    type Handle = Self::Tx;

    async fn acquire(&self) -> Result<Self::Tx, TxPoolError> {
        use deadpool_postgres::PoolError;
        self.get().await.map(of).map_err(|error| match error {
            PoolError::Closed | PoolError::NoRuntimeSpecified => TxPoolError::Closed(error.into()),
            _ => TxPoolError::Busy,
        })
    }

    fn handle(tx: &mut Self::Tx) -> &mut Self::Handle {
        tx
    }
}

#[cfg(feature = "bb8-postgres")]
mod bb8 {
    use bb8_postgres::PostgresConnectionManager;
    use bb8_postgres::bb8::{Pool, PooledConnection};
    use bb8_postgres::tokio_postgres::Socket;
    use bb8_postgres::tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

    use super::{PooledTx, TxPool, TxPoolError, of};

    #[diagnostic::do_not_recommend]
    impl<T> TxPool for Pool<PostgresConnectionManager<T>>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        type Tx = PooledTx<PooledConnection<'static, PostgresConnectionManager<T>>>;
        type Handle = Self::Tx;

        // The pool cannot be closed.
        async fn acquire(&self) -> Result<Self::Tx, TxPoolError> {
            let acquired = self.get_owned().await;
            acquired.map(of).map_err(|_| TxPoolError::Busy)
        }

        fn handle(tx: &mut Self::Tx) -> &mut Self::Handle {
            tx
        }
    }
}
