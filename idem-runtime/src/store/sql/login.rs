//! The client of the store's connections, and their credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::error::SqlError;
use super::error_kind::SqlErrorKind;
use super::session::{SqlClient, SqlSession};
use crate::env::credentials::CredentialsProvider;

/// How connections to a database log in.
pub(crate) struct Login {
    pub(super) client: Arc<dyn SqlClient>,
    /// In place of the user and the password of the client.
    credentials: Option<CredentialsProvider>,
    /// How long a connection may take.
    patience: Duration,
    /// The longest statement that the server accepts. An operator may change it while the store lives.
    longest: AtomicUsize,
}

impl Login {
    pub(super) fn new(
        client: Arc<dyn SqlClient>,
        credentials: Option<CredentialsProvider>,
        patience: Duration,
    ) -> Self {
        Self {
            client,
            credentials,
            patience,
            longest: usize::MAX.into(),
        }
    }

    pub(super) fn longest(&self) -> usize {
        self.longest.load(Ordering::Relaxed)
    }

    pub(super) fn learn_longest(&self, longest: i64) {
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        self.longest.store(longest, Ordering::Relaxed);
    }

    /// Whether a refused login may be let in later, with other credentials.
    pub(super) fn changes(&self) -> bool {
        self.credentials.is_some()
    }

    pub(super) async fn connect(&self) -> Result<Box<dyn SqlSession>, SqlError> {
        let Some(provider) = &self.credentials else {
            return self.client.connect(None).await;
        };
        let connect = |credentials| self.client.connect(Some(credentials));
        let is_refused = |error: &SqlError| error.kind() == Some(SqlErrorKind::Login);
        let connected = provider.log_in(self.patience, connect, is_refused).await;
        connected.map_err(SqlError::provider)?
    }
}
