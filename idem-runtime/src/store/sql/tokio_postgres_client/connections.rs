//! The store's own connections by tokio-postgres.

use std::future::Future;
use std::ops::Deref;

use tokio::task::AbortHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, NoTls, Socket};

use super::prepared::PreparedStatements;
use super::{DIALECT, forward, script, send, session_error};
use crate::credentials::Credentials;
use crate::store::sql::backend::Postgres;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::{SqlClient, SqlFuture, SqlSession, sends};
use crate::store::sql::source::{IntoSqlSource, SqlSource};
use crate::store::transport;

type Connected = Result<Box<dyn SqlSession>, SqlError>;

/// The client of a store's own connections, by its connecting function.
struct StoreClient<F> {
    connect: F,
    warning: Option<String>,
}

impl<F, C> SqlClient for StoreClient<F>
where
    F: Fn(Option<Credentials>) -> C + Send + Sync,
    C: Future<Output = Connected> + Send + 'static,
{
    fn connect(&self, credentials: Option<Credentials>) -> SqlFuture<'_, Box<dyn SqlSession>> {
        Box::pin((self.connect)(credentials))
    }

    fn is_one_message(&self) -> bool {
        true
    }

    fn warning(&self) -> Option<String> {
        self.warning.clone()
    }
}

fn source<F, C>(connect: F, warning: Option<String>) -> SqlSource<Postgres>
where
    F: Fn(Option<Credentials>) -> C + Send + Sync + 'static,
    C: Future<Output = Connected> + Send + 'static,
{
    SqlSource::new(StoreClient { connect, warning })
}

/// A connection of the store.
struct TokioPostgresConnection<C> {
    // Dropped first: a prepared statement is closed by a message unless its client is gone.
    client: C,
    prepared: PreparedStatements,
}

impl<C> TokioPostgresConnection<C>
where
    C: Deref<Target = Client> + Send + Sync + 'static,
{
    fn session(client: C) -> Box<dyn SqlSession> {
        let prepared = PreparedStatements::default();
        Box::new(Self { client, prepared })
    }
}

impl<C> SqlSession for TokioPostgresConnection<C>
where
    C: Deref<Target = Client> + Send + Sync + 'static,
{
    fn dialect(&self) -> &'static Dialect {
        DIALECT
    }

    sends! {|own, message, receive|
        send: async move {
            if !message.is_named() {
                return send(&own.client, message, receive).await;
            }
            let rows = own.prepared.send(&own.client, message).await;
            forward(rows.map_err(session_error)?, receive).await
        },
        script: script(&own.client, message, receive),
    }
}

/// The client of a connection that a [`Config`] describes.
struct ConfiguredClient {
    client: Client,
    /// The task that sends and receives.
    task: AbortHandle,
}

impl Deref for ConfiguredClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for ConfiguredClient {
    /// Closes the socket. Without that, the task waits for the outstanding reply of a server that may be gone.
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connect<T>(config: Config, tls: T) -> Connected
where
    T: MakeTlsConnect<Socket, Stream: Send + 'static>,
{
    let (client, connection) = config.connect(tls).await.map_err(session_error)?;
    let task = tokio::spawn(connection).abort_handle();
    Ok(TokioPostgresConnection::session(ConfiguredClient {
        client,
        task,
    }))
}

fn with_credentials(config: &Config, credentials: Option<Credentials>) -> Config {
    let mut config = config.clone();
    if let Some((user, password)) = credentials.map(Credentials::into_parts) {
        config.password(password);
        if let Some(user) = user {
            config.user(user);
        }
    }
    config
}

/// The warning about the transport of a client with or without TLS.
fn warning(config: &Config, has_tls: bool) -> Option<String> {
    let why = match config.get_ssl_mode() {
        SslMode::Prefer if has_tls => {
            "a connection that may be without TLS (`sslmode=prefer`, which is the default)"
        }
        SslMode::Prefer | SslMode::Disable => "a connection without TLS",
        _ => return None,
    };
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let is_local = if addresses.is_empty() {
        hosts.iter().all(|host| match host {
            Host::Tcp(name) => transport::is_local(name),
            #[cfg(unix)]
            Host::Unix(_) => true,
        })
    } else {
        (addresses.iter()).all(|address| transport::is_local(&address.to_string()))
    };
    let instead = "give the store the configuration with `sslmode=require` together with a TLS connector that \
                   verifies the server: `(config, connector)`";
    (!is_local).then(|| transport::warning(DIALECT.name, why, instead))
}

#[diagnostic::do_not_recommend]
impl IntoSqlSource<Postgres> for Config {
    fn into_source(self) -> SqlSource<Postgres> {
        let warning = warning(&self, false);
        let connect = move |credentials| connect(with_credentials(&self, credentials), NoTls);
        source(connect, warning)
    }
}

#[diagnostic::do_not_recommend]
impl<T> IntoSqlSource<Postgres> for (Config, T)
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn into_source(self) -> SqlSource<Postgres> {
        let (config, tls) = self;
        let warning = warning(&config, true);
        let connect =
            move |credentials| connect(with_credentials(&config, credentials), tls.clone());
        source(connect, warning)
    }
}

/// Refuses credentials in place of a pool's own.
#[cfg(any(feature = "bb8-postgres", feature = "deadpool-postgres"))]
fn none(credentials: Option<&Credentials>) -> Result<(), SqlError> {
    if credentials.is_none() {
        return Ok(());
    }
    Err(SqlError::configuration(
        "a pool's credentials cannot be replaced by those of a provider; make the store of the `tokio_postgres::Config`",
    ))
}

#[cfg(feature = "deadpool-postgres")]
#[diagnostic::do_not_recommend]
impl IntoSqlSource<Postgres> for &deadpool_postgres::Pool {
    fn into_source(self) -> SqlSource<Postgres> {
        use deadpool::managed::Manager as _;

        let pool = self.clone();
        let connect = move |credentials: Option<Credentials>| {
            let pool = pool.clone();
            async move {
                none(credentials.as_ref())?;
                let manager = pool.manager();
                let mut client = manager.create().await.map_err(session_error)?;
                // Otherwise the manager keeps an entry of it.
                manager.detach(&mut client);
                Ok(TokioPostgresConnection::session(client))
            }
        };
        source(connect, None)
    }
}

#[cfg(feature = "bb8-postgres")]
#[diagnostic::do_not_recommend]
impl<T> IntoSqlSource<Postgres> for &bb8::Pool<bb8_postgres::PostgresConnectionManager<T>>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + Sync,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn into_source(self) -> SqlSource<Postgres> {
        let pool = self.clone();
        let connect = move |credentials: Option<Credentials>| {
            let pool = pool.clone();
            async move {
                none(credentials.as_ref())?;
                let client = pool.dedicated_connection().await;
                let client = client.map_err(session_error)?;
                Ok(TokioPostgresConnection::session(Box::new(client)))
            }
        };
        source(connect, None)
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, NoTls};
    use crate::store::sql::source::IntoSqlSource as _;

    fn warns(config: &Config, has_tls: bool) -> bool {
        let source = if has_tls {
            (config.clone(), NoTls).into_source()
        } else {
            config.clone().into_source()
        };
        let warning = source.into_client().expect("a client").warning();
        let warning = warning.unwrap_or_default();
        let is_discreet = !warning.contains("secret") && !warning.contains("db.example");
        assert!(is_discreet, "{warning}");
        !warning.is_empty()
    }

    #[test]
    fn a_connection_that_may_be_open_is_reported_unless_it_stays_on_the_machine() {
        for (mode, has_tls, expected) in [
            ("", false, true),
            ("", true, true),
            ("sslmode=prefer", true, true),
            ("sslmode=disable", true, true),
            ("sslmode=require", true, false),
        ] {
            for (host, is_far) in [
                ("host=db.example", true),
                ("host=localhost,db.example", true),
                ("host=localhost hostaddr=10.0.0.7", true),
                ("hostaddr=10.0.0.7", true),
                ("host=localhost", false),
                ("host=db.example hostaddr=127.0.0.1", false),
                ("host=/var/run/postgresql", false),
            ] {
                let text = format!("user=app password=secret dbname=shop {host} {mode}");
                let config = text.parse().expect("a configuration");
                assert_eq!(warns(&config, has_tls), expected && is_far, "{text}");
            }
        }
    }
}
