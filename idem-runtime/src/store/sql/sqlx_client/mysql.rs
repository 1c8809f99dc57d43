//! Connections of sqlx to MySQL and MariaDB.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::mysql::{MySqlConnectOptions, MySqlQueryResult, MySqlRow, MySqlSslMode};
use sqlx::{ConnectOptions as _, Executor as _, MySql, MySqlConnection};
use sqlx_core::transaction::TransactionManager as _;

use super::{ClientOptions, SqlxDatabase, SqlxRow, bound, row, session, session_error};
use crate::credentials::Credentials;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::{SqlFuture, SqlReply, SqlRow, SqlSession, sends};
use crate::store::transport;

const DIALECT: &Dialect = Dialect::MYSQL;

impl SqlSession for MySqlConnection {
    session!(MySql);
    session!(rolls back MySql);
}

impl SqlxDatabase for MySql {
    fn last_insert_id(done: &MySqlQueryResult) -> u64 {
        done.last_insert_id()
    }
}

impl SqlRow for SqlxRow<'_, MySqlRow> {
    row!(&[u8]);
}

impl ClientOptions for MySqlConnectOptions {
    const DIALECT: &'static Dialect = DIALECT;

    /// Without a log: the text of a batch has answers.
    fn of_store(self) -> Self {
        self.disable_statement_logging()
    }

    fn with_credentials(self, credentials: Credentials) -> Self {
        let (user, password) = credentials.into_parts();
        let options = self.password(&password);
        match user {
            Some(user) => options.username(&user),
            None => options,
        }
    }

    fn warning(&self) -> Option<String> {
        let why = match self.get_ssl_mode() {
            MySqlSslMode::Disabled => "a connection without TLS (`ssl-mode=DISABLED`)",
            MySqlSslMode::Preferred => {
                "a connection that may be without TLS (`ssl-mode=PREFERRED`, which is the default)"
            }
            MySqlSslMode::Required | MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity => {
                return None;
            }
        };
        let is_local = self.get_socket().is_some() || transport::is_local(self.get_host());
        let instead = "set `ssl-mode=VERIFY_IDENTITY` with `ssl-ca`, and a TLS feature of sqlx";
        (!is_local).then(|| transport::warning(DIALECT.name, why, instead))
    }
}
