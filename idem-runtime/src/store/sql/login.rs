//! The options of a connection, and the credentials that it is made with.

use std::time::Duration;

use sqlx::Connection as _;

use super::backend::{Conn, Options, SqlDriver};
use super::error_kind::SqlErrorKind;
use super::failure::error_kind;
use crate::env::credentials::CredentialsProvider;

/// How connections to a database log in.
pub(crate) struct Login<B: SqlDriver> {
    pub(super) options: Options<B>,
    /// In place of the user and the password of the options.
    credentials: Option<CredentialsProvider>,
    /// How long a connection may take.
    patience: Duration,
}

impl<B: SqlDriver> Login<B> {
    pub(super) fn new(
        options: Options<B>,
        credentials: Option<CredentialsProvider>,
        patience: Duration,
    ) -> Self {
        Self {
            options,
            credentials,
            patience,
        }
    }

    /// Whether a refused login may be let in later, with other credentials.
    pub(super) fn changes(&self) -> bool {
        self.credentials.is_some()
    }

    pub(super) async fn connect(&self) -> Result<Conn<B>, sqlx::Error> {
        let connect = |options| async move { Conn::<B>::connect_with(&options).await };
        let Some(provider) = &self.credentials else {
            return connect(self.options.clone()).await;
        };
        let connect = |credentials| connect(B::with_credentials(self.options.clone(), credentials));
        let is_refused = |error: &_| error_kind::<B>(error) == Some(SqlErrorKind::Login);
        match provider.log_in(self.patience, connect, is_refused).await {
            Ok(connected) => connected,
            Err(error) => Err(sqlx::Error::Configuration(error.into())),
        }
    }
}
