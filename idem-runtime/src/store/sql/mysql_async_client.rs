//! The client `mysql_async`: its connections are sessions, and its transactions those of callers.
//!
//! A connection of it that has an abandoned message would give the reply to the next one. So a [`Message`] that is
//! dropped before its whole reply closes the connection, for all later users of it.

use std::borrow::Cow;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Waker};

use futures_core::Stream as _;
use mysql_async::prelude::{Protocol, Queryable as _};
use mysql_async::{
    Conn, Connection, DriverError, Error, IoError, Opts, OptsBuilder, Params, Pool, QueryResult,
    Row, Statement, Transaction, Value,
};

use super::argument::SqlArgument;
use super::backend::MySql;
use super::dialect::Dialect;
use super::error::SqlError;
use super::session::{
    SqlClient, SqlFuture, SqlReceiver, SqlReply, SqlRow, SqlSession, SqlStatement,
};
use super::source::{IntoSqlSource, SqlSource};
use super::transaction::SqlTransaction;
use crate::credentials::Credentials;
use crate::store::transport;

const DIALECT: &Dialect = Dialect::MYSQL;

/// Maps an error of `mysql_async`, whose own text of a driver's error may show a packet.
#[allow(
    unreachable_patterns,
    reason = "without a feature for TLS there is one kind of `IoError`"
)]
fn session_error(error: Error) -> SqlError {
    match error {
        Error::Server(error) => SqlError::server(DIALECT, error.code.to_string(), &error.message),
        Error::Driver(error @ DriverError::NoClientSslFlagFromServer) => SqlError::tls(error),
        Error::Driver(
            error @ (DriverError::UnknownAuthPlugin { .. }
            | DriverError::MysqlOldPasswordDisabled
            | DriverError::CleartextPluginDisabled),
        ) => SqlError::configuration(error),
        Error::Io(IoError::Io(error)) => SqlError::lost(error),
        Error::Io(error) => SqlError::tls(error),
        error => SqlError::lost(error.to_string()),
    }
}

/// A statement without parameters, of any connection.
static NOTHING: OnceLock<Statement> = OnceLock::new();

/// A message, whose connection is closed unless it has the whole reply.
struct Message<'c, 't> {
    conn: Connection<'c, 't>,
    is_answered: bool,
}

impl<'c, 't: 'c> Message<'c, 't> {
    fn on(conn: impl Into<Connection<'c, 't>>) -> Self {
        Self {
            conn: conn.into(),
            is_answered: false,
        }
    }

    /// Refuses a connection with an abandoned message, such as one of the body's.
    async fn check(&mut self) -> Result<(), SqlError> {
        if self.conn.is_disconnected() {
            return Err(SqlError::lost("an earlier message was abandoned"));
        }
        if NOTHING.get().is_none() {
            let nothing = self.conn.prep("DO 0").await.map_err(session_error)?;
            let closed = self.conn.close(nothing.clone()).await;
            closed.map_err(session_error)?;
            NOTHING.get_or_init(|| nothing);
        }
        Ok(())
    }

    async fn send(
        mut self,
        statement: SqlStatement<'_>,
        receive: &mut SqlReceiver<'_>,
    ) -> Result<(), SqlError> {
        let sent = async {
            self.check().await?;
            let values: Result<Vec<_>, _> = statement.arguments().map(value).collect();
            let values = Params::Positional(values?);
            let prepared = self.conn.prep(&**statement.text()).await;
            let prepared = prepared.map_err(session_error)?;
            let sent = match self.conn.exec_iter(&prepared, values).await {
                Ok(result) => forward(result, receive).await,
                Err(error) => Err(session_error(error)),
            };
            // Without a cache the client closes none, and the server has a limit.
            let is_kept = statement.is_named() && self.conn.opts().stmt_cache_size() > 0;
            if !is_kept && !sent.as_ref().is_err_and(SqlError::is_lost) {
                // If it fails, so does the next message.
                let _ = self.conn.close(prepared).await;
            }
            sent
        };
        let sent = sent.await;
        self.end(sent)
    }

    async fn script(
        mut self,
        script: String,
        receive: &mut SqlReceiver<'_>,
    ) -> Result<(), SqlError> {
        let sent = async {
            self.check().await?;
            let result = self.conn.query_iter(script).await;
            forward(result.map_err(session_error)?, receive).await
        };
        let sent = sent.await;
        self.end(sent)
    }

    fn end(mut self, sent: Result<(), SqlError>) -> Result<(), SqlError> {
        self.is_answered = !sent.as_ref().is_err_and(SqlError::is_lost);
        sent
    }
}

impl Drop for Message<'_, '_> {
    /// Closes the connection by an error of the client: a surplus argument. It is noticed before anything is sent.
    fn drop(&mut self) {
        if !self.is_answered
            && let Some(nothing) = NOTHING.get()
        {
            let mut refused = self.conn.exec_iter(nothing, (0,));
            let _ = Pin::new(&mut refused).poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

fn value(argument: SqlArgument<'_>) -> Result<Value, SqlError> {
    Ok(match argument {
        SqlArgument::Null => Value::NULL,
        SqlArgument::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
        SqlArgument::Int(number) => Value::Int(number),
        SqlArgument::Text(text) => Value::Bytes(text.as_bytes().to_vec()),
        SqlArgument::Array(_) => return Err(SqlError::client("it has no arrays")),
    })
}

/// Forwards the rows and the end of each statement. After an error of the receiver the rest is discarded.
async fn forward<P: Protocol + Unpin>(
    mut result: QueryResult<'_, '_, P>,
    receive: &mut SqlReceiver<'_>,
) -> Result<(), SqlError> {
    let mut received = Ok(());
    loop {
        let mut rows = match result.stream::<Row>().await {
            Ok(Some(rows)) => rows,
            Ok(None) => return received,
            Err(error) => return received.and(Err(session_error(error))),
        };
        while let Some(row) = poll_fn(|cx| Pin::new(&mut rows).poll_next(cx)).await {
            match row {
                Ok(row) if received.is_ok() => received = receive(SqlReply::Row(&Columns(&row))),
                Ok(_) => {}
                Err(error) => return received.and(Err(session_error(error))),
            }
        }
        // Of rows the client has the numbers of an earlier statement.
        let (affected, last_insert_id) = if rows.columns_ref().is_empty() {
            (rows.affected_rows(), rows.last_insert_id().unwrap_or(0))
        } else {
            (0, 0)
        };
        if received.is_ok() {
            received = receive(SqlReply::done_with_id(affected, last_insert_id));
        }
    }
}

/// A row, whose numbers are texts in the reply to a script.
struct Columns<'r>(&'r Row);

impl Columns<'_> {
    fn value(&self, column: usize) -> Result<&Value, SqlError> {
        let value = self.0.as_ref(column);
        value.ok_or_else(|| SqlError::client("a column is missing"))
    }
}

impl SqlRow for Columns<'_> {
    fn columns(&self) -> usize {
        self.0.len()
    }

    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
        let number = match self.value(column)? {
            Value::NULL => return Ok(None),
            Value::Int(number) => Some(*number),
            Value::UInt(number) => i64::try_from(*number).ok(),
            Value::Bytes(text) => str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        let number = number.ok_or_else(|| SqlError::client("this is no number of 64 bits"))?;
        Ok(Some(number))
    }

    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, SqlError> {
        let Some(Cow::Borrowed(bytes)) = self.bytes(column)? else {
            return Ok(None);
        };
        let text = str::from_utf8(bytes).map_err(|_| SqlError::client("this is no text"))?;
        Ok(Some(Cow::Borrowed(text)))
    }

    fn bytes(&self, column: usize) -> Result<Option<Cow<'_, [u8]>>, SqlError> {
        match self.value(column)? {
            Value::NULL => Ok(None),
            Value::Bytes(bytes) => Ok(Some(Cow::Borrowed(bytes))),
            _ => Err(SqlError::client("these are no bytes")),
        }
    }
}

/// A connection of the store, which begins no transaction.
struct OwnConnection(Conn);

macro_rules! session {
    ($Session:ty, |$session:ident| $conn:expr) => {
        impl SqlSession for $Session {
            fn dialect(&self) -> &'static Dialect {
                DIALECT
            }

            fn send<'a>(
                &'a mut self,
                statement: SqlStatement<'a>,
                receive: &'a mut SqlReceiver<'a>,
            ) -> SqlFuture<'a, ()> {
                let $session = self;
                Box::pin(Message::on($conn).send(statement, receive))
            }

            fn script<'a>(
                &'a mut self,
                script: String,
                receive: &'a mut SqlReceiver<'a>,
            ) -> SqlFuture<'a, ()> {
                let $session = self;
                Box::pin(Message::on($conn).script(script, receive))
            }
        }
    };
}

session!(OwnConnection, |own| &mut own.0);
session!(Transaction<'_>, |tx| tx);

#[diagnostic::do_not_recommend]
impl SqlTransaction for Transaction<'_> {
    fn session(&mut self) -> &mut (dyn SqlSession + '_) {
        self
    }

    fn give_up(&mut self) {
        drop(Message::on(self));
    }
}

/// The client of the store's own connections.
struct MySqlAsyncClient {
    /// A pool shows its options in a connection only.
    pool: Option<Pool>,
    opts: OnceLock<Opts>,
}

impl MySqlAsyncClient {
    async fn opts(&self) -> Result<Opts, Error> {
        if let (Some(pool), None) = (&self.pool, self.opts.get()) {
            let opts = pool.get_conn().await?.opts().clone();
            let _ = self.opts.set(opts);
        }
        Ok(self.opts.get().cloned().unwrap_or_default())
    }
}

impl SqlClient for MySqlAsyncClient {
    fn connect(&self, credentials: Option<Credentials>) -> SqlFuture<'_, Box<dyn SqlSession>> {
        Box::pin(async move {
            let mut opts = self.opts().await.map_err(session_error)?;
            if let Some((user, password)) = credentials.map(Credentials::into_parts) {
                let user = user.or_else(|| opts.user().map(str::to_owned));
                let with = OptsBuilder::from_opts(opts);
                opts = with.user(user).pass(Some(password)).into();
            }
            let conn = Conn::new(opts).await.map_err(session_error)?;
            Ok(Box::new(OwnConnection(conn)) as _)
        })
    }

    fn warning(&self) -> Option<String> {
        let opts = self.opts.get()?;
        let is_local = opts.socket().is_some() || transport::is_local(opts.ip_or_hostname());
        let why = "a connection without TLS (no `ssl_opts`)";
        let instead = "set `ssl_opts` on the options, and enable a TLS feature of mysql_async";
        let is_open = opts.ssl_opts().is_none() && !is_local;
        is_open.then(|| transport::warning(DIALECT.name, why, instead))
    }
}

#[diagnostic::do_not_recommend]
impl IntoSqlSource<MySql> for Opts {
    fn into_source(self) -> SqlSource<MySql> {
        SqlSource::new(MySqlAsyncClient {
            pool: None,
            opts: self.into(),
        })
    }
}

#[diagnostic::do_not_recommend]
impl IntoSqlSource<MySql> for OptsBuilder {
    fn into_source(self) -> SqlSource<MySql> {
        Opts::from(self).into_source()
    }
}

#[diagnostic::do_not_recommend]
impl IntoSqlSource<MySql> for &Pool {
    fn into_source(self) -> SqlSource<MySql> {
        SqlSource::new(MySqlAsyncClient {
            pool: Some(self.clone()),
            opts: OnceLock::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::SslOpts;

    use super::*;

    #[test]
    fn a_connection_without_tls_is_reported_unless_it_stays_on_the_machine() {
        for (host, is_far) in [
            ("db.example", true),
            ("10.0.0.7:3307", true),
            ("localhost", false),
            ("127.0.0.1", false),
            ("db.example/shop?socket=%2Frun%2Fmysqld.sock", false),
        ] {
            let opts = Opts::from_url(&format!("mysql://app:secret@{host}")).unwrap();
            let secure = OptsBuilder::from_opts(opts.clone()).ssl_opts(SslOpts::default());
            for (opts, warns) in [(opts, is_far), (secure.into(), false)] {
                let warning = opts.into_source().into_client().unwrap().warning();
                assert_eq!(warning.is_some(), warns, "{host}");
                let warning = warning.unwrap_or_default();
                let is_discreet = !warning.contains("secret") && !warning.contains("db.example");
                assert!(is_discreet, "{warning}");
            }
        }
    }

    #[test]
    fn an_error_shows_no_packet_and_loses_the_connection() {
        let payload = b"4111-1111".to_vec();
        let error = session_error(DriverError::UnexpectedPacket { payload }.into());
        assert!(error.is_lost());
        assert!(!format!("{error:?}").contains("52, 49"), "{error:?}");
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(session_error(refused.into()).is_lost());
    }
}
