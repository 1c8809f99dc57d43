//! The handler: a charge at the bank, and in `tx` mode a row as well.

use std::io;
use std::net::SocketAddr;

use idem_consumers::Raw;
use idem_runtime::{Classify, Context};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Why a bill was not collected.
#[derive(Clone, Copy, Debug, Classify, Deserialize, Serialize)]
pub(crate) enum Failure {
    #[class(system)]
    Bank,
    #[class(system)]
    Database,
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

#[derive(Debug)]
pub(crate) struct Handler {
    /// The name at the bank, and its address.
    pub(crate) bank: (u32, SocketAddr),
}

impl Handler {
    pub(crate) async fn collect(&self, message: Raw, cx: Context) -> Result<(), Failure> {
        let id = String::from_utf8(message.0).expect("as it was sent");
        self.charge(&id, &cx.derive_key("bank")).await
    }

    /// Writes a row as well.
    pub(crate) async fn collect_in_tx(
        &self,
        message: Raw,
        conn: &mut PgConnection,
        cx: Context,
    ) -> Result<(), Failure> {
        let id = String::from_utf8(message.0).expect("as it was sent");
        let insert = sqlx::query("INSERT INTO bills (id) VALUES ($1)");
        insert.bind(&id).execute(conn).await?;
        self.charge(&id, &cx.derive_key("bank")).await
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
