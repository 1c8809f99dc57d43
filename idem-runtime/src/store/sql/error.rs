//! The error of a session, by its meaning for a statement.

use std::error::Error;
use std::fmt;

use super::dialect::Dialect;
use super::error_kind::SqlErrorKind;
use crate::env::credentials::ProviderError;

/// An error that a client library has.
type ClientCause = Box<dyn Error + Send + Sync>;

/// The error of a [`SqlSession`](super::SqlSession).
///
/// Of an error of the server it has the code and the kind: its text may quote values.
#[derive(Debug)]
pub struct SqlError(pub(super) SqlFailure);

/// What failed.
#[derive(Debug)]
#[allow(dead_code, reason = "a database has some of them")]
pub(super) enum SqlFailure {
    /// The server replied with an error.
    Server { kind: SqlErrorKind, code: String },
    /// The connection cannot be made, or is lost.
    Lost(ClientCause),
    /// No TLS with the server.
    Tls(ClientCause),
    /// The address or the settings of the client are wrong.
    Configuration(ClientCause),
    /// The server is unsuitable, by a sentence of this crate.
    Unfit(String),
    /// No credentials.
    Provider(ProviderError),
    /// The reply cannot be read, or anything else on the client's side.
    Client(ClientCause),
}

impl SqlError {
    /// An error of the server, by its code.
    ///
    /// That is the SQLSTATE of PostgreSQL, the number of an error of MySQL (not its SQLSTATE), the extended result code of
    /// SQLite. The outcome of a message with another code is unknown. The text tells errors of one code apart, and is not
    /// kept.
    #[must_use]
    pub fn server(dialect: &Dialect, code: impl Into<String>, text: &str) -> Self {
        let code = code.into();
        let kind = (dialect.error_kind)(&code, text);
        Self(SqlFailure::Server { kind, code })
    }

    /// The connection cannot be made, is lost, or violates its protocol: no further use of it succeeds.
    ///
    /// The outcome of the message is unknown. In doubt an error is of this kind, a time-out of the client too. The text of
    /// the cause appears in errors, and must not quote a value.
    pub fn lost(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(SqlFailure::Lost(cause.into()))
    }

    /// No TLS with the server: none on either side, or a certificate that is refused.
    pub fn tls(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(SqlFailure::Tls(cause.into()))
    }

    /// A lost connection, or a TLS fault by its cause's text.
    ///
    /// For clients that do not tell one from the other.
    #[allow(dead_code, reason = "each client has its feature")]
    pub(super) fn lost_or_untrusted(cause: impl Into<ClientCause>) -> Self {
        let cause = cause.into();
        if cause.to_string().contains("invalid peer certificate") {
            Self::tls(cause)
        } else {
            Self::lost(cause)
        }
    }

    /// The address or the settings of the client are wrong.
    pub fn configuration(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(SqlFailure::Configuration(cause.into()))
    }

    /// A reply that cannot be read: a value of another type. The text must not quote the value.
    ///
    /// Such an error is permanent: the operation is not sent again.
    pub fn client(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(SqlFailure::Client(cause.into()))
    }

    /// Whether the server replied with it: the connection is usable.
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        self.kind().is_some()
    }

    /// The error of a new connection: a right that is missing there is none of the table.
    pub(super) fn of_login(self) -> Self {
        const ADVICE: &str = "the server does not let this user into the database: it lacks the right CONNECT, or that to \
                              set a parameter of the connection";
        match self.0 {
            SqlFailure::Server {
                kind: SqlErrorKind::Refused,
                code,
            } => Self(SqlFailure::Server {
                kind: SqlErrorKind::Setting(ADVICE),
                code,
            }),
            failure => Self(failure),
        }
    }

    /// Whether it leaves the outcome of a message unknown: it is about the server, or of a proxy in front of it.
    pub(crate) fn is_silence(&self) -> bool {
        self.kind().is_none_or(SqlErrorKind::is_silence)
    }

    pub(super) fn provider(error: ProviderError) -> Self {
        Self(SqlFailure::Provider(error))
    }

    pub(super) fn null() -> Self {
        Self::client("a value is missing")
    }

    #[cfg(feature = "_sqlite")]
    pub(super) fn unfit(problem: impl Into<String>) -> Self {
        Self(SqlFailure::Unfit(problem.into()))
    }

    /// The kind of a server's error.
    pub(crate) fn kind(&self) -> Option<SqlErrorKind> {
        match &self.0 {
            SqlFailure::Server { kind, .. } => Some(*kind),
            _ => None,
        }
    }

    /// Whether the connection is unusable.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.0, SqlFailure::Lost(_) | SqlFailure::Tls(_))
    }

    /// Whether it collided with another transaction.
    pub(super) fn is_collision(&self) -> bool {
        matches!(self.kind(), Some(SqlErrorKind::Collision { .. }))
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SqlFailure::Server { code, .. } => write!(f, "the server replied with error {code}"),
            SqlFailure::Lost(_) => f.write_str("the connection is lost or cannot be made"),
            SqlFailure::Tls(_) => f.write_str("no TLS with the server"),
            SqlFailure::Configuration(_) => f.write_str("the address or a setting is wrong"),
            SqlFailure::Unfit(problem) => f.write_str(problem),
            SqlFailure::Provider(error) => error.fmt(f),
            SqlFailure::Client(_) => f.write_str("the reply cannot be read"),
        }
    }
}

impl Error for SqlError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            SqlFailure::Lost(cause)
            | SqlFailure::Tls(cause)
            | SqlFailure::Configuration(cause)
            | SqlFailure::Client(cause) => Some(&**cause),
            SqlFailure::Provider(error) => error.source(),
            SqlFailure::Server { .. } | SqlFailure::Unfit(_) => None,
        }
    }
}
