//! The handler: a charge at the bank, and in `tx` mode a row as well.

use std::io;
use std::net::SocketAddr;

use idem_runtime::consumer::Raw;
use idem_runtime::{Classify, Context, Engine, Error};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Why a bill was not collected.
#[derive(Clone, Copy, Debug, Classify, Deserialize, Serialize)]
pub(crate) enum Failure {
    #[class(system)]
    Bank,
    #[class(system)]
    Database,
    #[class(system)]
    Record,
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Bank
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        eprintln!("a row: {error}");
        Self::Database
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        eprintln!("a record: {error}");
        Self::Record
    }
}

#[derive(Debug)]
pub(crate) struct Handler {
    engine: Engine,
    /// The name at the bank, and its address.
    bank: (u32, SocketAddr),
    rows: Option<PgPool>,
}

impl Handler {
    /// `rows`: the database of the rows.
    pub(crate) fn new(engine: Engine, bank: (u32, SocketAddr), rows: Option<&str>) -> Self {
        let rows = rows.map(|url| {
            let pool = PgPoolOptions::new().max_connections(8);
            pool.connect_lazy(url).expect("a URL of Postgres")
        });
        Self { engine, bank, rows }
    }

    pub(crate) async fn collect(&self, message: Raw, cx: Context) -> Result<(), Failure> {
        let id = String::from_utf8(message.0).expect("as it was sent");
        let key = cx.derive_key("bank");
        let Some(rows) = &self.rows else {
            return self.charge(&id, &key).await;
        };
        let mut tx = rows.begin().await?;
        let call = self.engine.operation("bills.row").key(&id).in_tx(&mut *tx);
        let row: Result<(), Failure> = call
            .run(async |conn: &mut PgConnection, _| {
                let insert = sqlx::query("INSERT INTO bills (id) VALUES ($1)");
                insert.bind(&id).execute(conn).await?;
                self.charge(&id, &key).await
            })
            .await;
        match row {
            Ok(()) => Ok(tx.commit().await?),
            Err(failure) => {
                tx.rollback().await?;
                Err(failure)
            }
        }
    }

    /// Charges once by this key.
    async fn charge(&self, id: &str, key: &str) -> Result<(), Failure> {
        let (name, bank) = self.bank;
        let mut bank = BufReader::new(TcpStream::connect(bank).await?);
        let request = format!("{name} {id} {key}\n");
        bank.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        bank.read_line(&mut answer).await?;
        match &*answer {
            "charged\n" => Ok(()),
            _ => Err(Failure::Bank),
        }
    }
}
