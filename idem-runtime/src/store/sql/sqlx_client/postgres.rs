//! Connections of sqlx to PostgreSQL.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::error::BoxDynError;
use sqlx::postgres::{
    PgArguments, PgConnectOptions, PgRow, PgSslMode, PgTypeInfo, PgValueFormat, PgValueRef,
};
use sqlx::{
    Arguments as _, ConnectOptions as _, Connection as _, Decode, Executor as _, PgConnection, Type,
};
use sqlx_core::transaction::TransactionManager as _;

use super::{ClientOptions, SqlxDatabase, SqlxRow, bound, row, session, session_error};
use crate::credentials::Credentials;
use crate::store::sql::argument::{SqlArray, TypedElements};
use crate::store::sql::bytea::bytea;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;
use crate::store::sql::session::{SqlFuture, SqlReply, SqlRow, SqlSession, sends};
use crate::store::transport;

const DIALECT: &Dialect = Dialect::POSTGRES;

impl SqlSession for PgConnection {
    session!(sqlx::Postgres);
    session!(rolls back sqlx::Postgres);

    fn keeps_statements(&self) -> bool {
        self.cached_statements_size() > 0
    }
}

impl SqlxDatabase for sqlx::Postgres {
    fn add_array(arguments: &mut PgArguments, array: SqlArray<'_>) -> Result<(), BoxDynError> {
        match array.typed() {
            TypedElements::Bytes(all) => arguments.add(all),
            TypedElements::Ints(all) => arguments.add(all),
            TypedElements::Texts(all) => arguments.add(all),
        }
    }
}

/// Bytes. In the simple protocol they are a text, which sqlx decodes in one of its formats only.
struct Bytea<'r>(Cow<'r, [u8]>);

impl<'r> From<Bytea<'r>> for Cow<'r, [u8]> {
    fn from(bytes: Bytea<'r>) -> Self {
        bytes.0
    }
}

impl Type<sqlx::Postgres> for Bytea<'_> {
    fn type_info() -> PgTypeInfo {
        <Vec<u8> as Type<sqlx::Postgres>>::type_info()
    }
}

impl<'r> Decode<'r, sqlx::Postgres> for Bytea<'r> {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Binary {
            return Ok(Self(Cow::Borrowed(value.as_bytes()?)));
        }
        let bytes = bytea(value.as_str()?).ok_or("the text of bytes cannot be read")?;
        Ok(Self(Cow::Owned(bytes)))
    }
}

impl SqlRow for SqlxRow<'_, PgRow> {
    row!(Bytea<'_>);
}

impl ClientOptions for PgConnectOptions {
    const DIALECT: &'static Dialect = DIALECT;

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
            PgSslMode::Disable => "a connection without TLS (`sslmode=disable`)",
            PgSslMode::Allow => "a connection that may be without TLS (`sslmode=allow`)",
            PgSslMode::Prefer => {
                "a connection that may be without TLS (`sslmode=prefer`, which is the default)"
            }
            PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull => return None,
        };
        let is_local = self.get_socket().is_some() || transport::is_local(self.get_host());
        let instead = "set `sslmode=verify-full` with `sslrootcert`, and a TLS feature of sqlx";
        (!is_local).then(|| transport::warning(DIALECT.name, why, instead))
    }

    // Only the URL shows the capacity of the cache. The host may be none of a URL.
    fn is_unnamed(&self) -> bool {
        let options = self.clone().host("localhost").username("idem");
        let url = options.to_url_lossy();
        let mut settings = url.query_pairs();
        settings.any(|(name, value)| name == "statement-cache-capacity" && value == "0")
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::{ClientOptions as _, PgConnectOptions};

    #[test]
    fn statements_have_no_names_at_a_capacity_of_zero() {
        for (path, host, unnamed) in [
            ("app:secret@db.example/shop", "", false),
            (
                "app:secret@db.example/shop?statement-cache-capacity=0",
                "",
                true,
            ),
            ("app@[::1]/a%20b?statement-cache-capacity=0", "", true),
            ("app@db.example/shop?statement-cache-capacity=10", "", false),
            (
                "/shop?host=/var/run/a%20b&statement-cache-capacity=0",
                "",
                true,
            ),
            // Hosts that are none of a URL.
            (
                "app@db.example/shop?statement-cache-capacity=0",
                "::1",
                true,
            ),
            (
                "app@db.example/shop?statement-cache-capacity=0",
                "a:b/c d",
                true,
            ),
        ] {
            let options = PgConnectOptions::from_str(&format!("postgres://{path}")).unwrap();
            let options = match host {
                "" => options,
                host => options.host(host).username("a:b/c@d"),
            };
            assert_eq!(options.is_unnamed(), unnamed, "{path} {host}");
        }
    }
}
