//! `mysql_async`.

use idem_runtime::store::sql::MySql;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Transaction, TxOpts};

use super::{Client, Ended};
use crate::database::Sql;

pub(crate) struct MySqlAsyncClient;

/// The options of a URL, without the client's way around a proxy.
pub(crate) fn options(url: &str) -> OptsBuilder {
    let opts = Opts::from_url(url).expect("a URL");
    OptsBuilder::from_opts(opts).prefer_socket(false)
}

macro_rules! sql {
    ($Type:ty) => {
        impl Sql for $Type {
            async fn run(&mut self, sql: &str) -> Result<(), String> {
                let done = self.query_drop(sql).await;
                done.map_err(|error| error.to_string())
            }

            async fn count(&mut self, sql: &str) -> i64 {
                let number = self.query_first(sql).await;
                number.expect("the server is up").expect("a row")
            }
        }
    };
}

sql!(Conn);
sql!(Transaction<'_>);

impl Client for MySqlAsyncClient {
    const DISCARDS_REPLIES: bool = false;

    type Database = MySql;
    type Conn = Conn;
    type Tx<'t> = Transaction<'t>;

    async fn connect(url: &str) -> Conn {
        Conn::new(options(url)).await.expect("the server is up")
    }

    async fn in_transaction<T>(
        conn: &mut Conn,
        work: impl AsyncFnOnce(&mut Self::Tx<'_>) -> (T, Ended),
    ) -> (T, Result<(), String>) {
        let begun = conn.start_transaction(TxOpts::default()).await;
        let mut tx = begun.expect("the server is up");
        let (value, end) = work(&mut tx).await;
        // A future of the client was dropped, of the body or of idem.
        if tx.is_disconnected() {
            return (value, Err("the connection is closed".to_owned()));
        }
        let ended = match end {
            Ended::Commit => tx.commit().await,
            Ended::Rollback => tx.rollback().await,
            Ended::Drop => Ok(()),
        };
        (value, ended.map_err(|error| error.to_string()))
    }
}
