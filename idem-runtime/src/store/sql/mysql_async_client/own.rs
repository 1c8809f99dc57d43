//! The store's own connections.

use std::sync::OnceLock;

use mysql_async::{Conn, Error, Opts, OptsBuilder, Pool};

use super::error::session_error;
use super::message::{MySqlAsyncMessage, session};
use crate::credentials::Credentials;
use crate::store::sql::backend::MySql;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::session::{SqlClient, SqlFuture, SqlSession, sends};
use crate::store::sql::source::{IntoSqlSource, SqlSource};
use crate::store::transport;

/// A connection of the store, which begins no transaction.
struct OwnConnection(Conn);

session!(OwnConnection, |own| &mut own.0);

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
        is_open.then(|| transport::warning(Dialect::MYSQL.name, why, instead))
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
}
