//! tokio-postgres as a client of idem, on its public surface alone: what an application writes to bring one.

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use futures_util::TryStreamExt as _;
use idem_runtime::credentials::Credentials;
use idem_runtime::store::sql::{
    Dialect, SqlArgument, SqlArray, SqlClient, SqlError, SqlFuture, SqlReceiver, SqlReply, SqlRow,
    SqlSession, SqlStatement, SqlTransaction, bytea,
};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls, Row, SimpleQueryMessage, SimpleQueryRow};

/// A connection, and whether it is in a transaction that was begun by [`begin`](SqlSession::begin).
#[derive(Debug)]
pub struct TokioPostgres {
    client: Client,
    transactions: usize,
}

impl TokioPostgres {
    /// Connects.
    pub async fn connect(config: &Config) -> Result<Self, SqlError> {
        let (client, connection) = config.connect(NoTls).await.map_err(session_error)?;
        tokio::spawn(connection);
        Ok(Self {
            client,
            transactions: 0,
        })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    async fn control(&mut self, text: &str, transactions: usize) -> Result<(), SqlError> {
        self.client
            .batch_execute(text)
            .await
            .map_err(session_error)?;
        self.transactions = transactions;
        Ok(())
    }
}

fn session_error(error: Error) -> SqlError {
    match error.as_db_error() {
        Some(server) => {
            let code = server.code().code().to_owned();
            SqlError::server(Dialect::POSTGRES, code, server.message())
        }
        None => SqlError::lost(error),
    }
}

type Parameter<'a> = (Box<dyn ToSql + Sync + Send + 'a>, Type);

fn parameter(argument: SqlArgument<'_>) -> Parameter<'_> {
    match argument {
        SqlArgument::Bytes(bytes) => (Box::new(bytes), Type::BYTEA),
        SqlArgument::Int(number) => (Box::new(number), Type::INT8),
        SqlArgument::Text(text) => (Box::new(text), Type::TEXT),
        SqlArgument::Array(array) => array_parameter(array),
        SqlArgument::Null => (Box::new(None::<&[u8]>), Type::BYTEA),
    }
}

fn array_parameter(array: SqlArray<'_>) -> Parameter<'_> {
    macro_rules! all {
        ($kind:ident) => {{
            let elements = array.elements().map(|element| match element {
                SqlArgument::$kind(value) => Some(value),
                _ => None,
            });
            Box::new(elements.collect::<Vec<_>>())
        }};
    }
    match array.elements().next() {
        Some(SqlArgument::Int(_)) => (all!(Int), Type::INT8_ARRAY),
        Some(SqlArgument::Text(_)) => (all!(Text), Type::TEXT_ARRAY),
        _ => (all!(Bytes), Type::BYTEA_ARRAY),
    }
}

impl SqlSession for TokioPostgres {
    fn dialect(&self) -> &'static Dialect {
        Dialect::POSTGRES
    }

    fn send<'a>(
        &'a mut self,
        statement: SqlStatement<'a>,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()> {
        Box::pin(async move {
            let parameters: Vec<_> = statement.arguments().map(parameter).collect();
            let rows = self.client.query_typed_raw(statement.text(), parameters);
            let rows = rows.await.map_err(session_error)?;
            let mut rows = pin!(rows);
            while let Some(row) = rows.try_next().await.map_err(session_error)? {
                receive(SqlReply::Row(&Values(&row)))?;
            }
            receive(SqlReply::done(rows.rows_affected().unwrap_or(0)))
        })
    }

    fn script<'a>(
        &'a mut self,
        script: String,
        receive: &'a mut SqlReceiver<'a>,
    ) -> SqlFuture<'a, ()> {
        Box::pin(async move {
            let parts = self.client.simple_query(&script).await;
            for part in parts.map_err(session_error)? {
                match part {
                    SimpleQueryMessage::Row(row) => receive(SqlReply::Row(&Texts(&row)))?,
                    SimpleQueryMessage::CommandComplete(affected) => {
                        receive(SqlReply::done(affected))?;
                    }
                    _ => {}
                }
            }
            Ok(())
        })
    }

    fn depth(&mut self) -> usize {
        self.transactions
    }

    fn begin(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(self.control("BEGIN", 1))
    }

    fn commit(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(self.control("COMMIT", 0))
    }

    fn rollback(&mut self) -> SqlFuture<'_, ()> {
        Box::pin(self.control("ROLLBACK", 0))
    }

    fn start_rollback(&mut self) {
        // The first poll queues the message.
        let _ = pin!(self.client.batch_execute("ROLLBACK"))
            .poll(&mut Context::from_waker(Waker::noop()));
        self.transactions = 0;
    }
}

impl SqlTransaction for TokioPostgres {
    fn session(&mut self) -> &mut dyn SqlSession {
        self
    }

    /// Behind a `BEGIN` whose future was dropped.
    fn give_up(&mut self) {
        self.start_rollback();
    }
}

/// A row with typed values.
struct Values<'r>(&'r Row);

impl SqlRow for Values<'_> {
    fn columns(&self) -> usize {
        self.0.len()
    }

    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
        self.0.try_get(column).map_err(SqlError::client)
    }

    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
        let text = self.0.try_get::<_, Option<&str>>(column);
        Ok(text.map_err(SqlError::client)?.map(Cow::Borrowed))
    }

    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
        let bytes = self.0.try_get::<_, Option<&[u8]>>(column);
        Ok(bytes.map_err(SqlError::client)?.map(Cow::Borrowed))
    }
}

/// A row of a script, whose values are texts.
struct Texts<'r>(&'r SimpleQueryRow);

impl SqlRow for Texts<'_> {
    fn columns(&self) -> usize {
        self.0.len()
    }

    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
        let number = self.0.get(column).map(str::parse).transpose();
        number.map_err(SqlError::client)
    }

    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
        Ok(self.0.get(column).map(Cow::Borrowed))
    }

    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
        let Some(text) = self.0.get(column) else {
            return Ok(None);
        };
        let bytes = bytea(text).ok_or_else(|| SqlError::client("these are no bytes"))?;
        Ok(Some(Cow::Owned(bytes)))
    }
}

/// The client of a store's own connections, by its configuration.
pub struct TokioPostgresClient(pub Config);

impl SqlClient for TokioPostgresClient {
    fn connect(&self, credentials: Option<Credentials>) -> SqlFuture<'_, Box<dyn SqlSession>> {
        let mut config = self.0.clone();
        if let Some((user, password)) = credentials.map(Credentials::into_parts) {
            config.password(password);
            user.map(|user| config.user(user));
        }
        Box::pin(async move { Ok(Box::new(TokioPostgres::connect(&config).await?) as _) })
    }
}
