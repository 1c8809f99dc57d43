//! A server's address, the credentials of connections to it, and what its errors mean.

use std::io;
use std::time::Duration;

use idem_runtime::credentials::{Credentials, CredentialsProvider, ProviderError};
use redis::{Client, ErrorKind, RedisError, RedisResult};
use tokio::time::timeout;

pub(super) const NO_ROOM: &str = "Redis takes no more connections (`maxclients`); raise the limit, or close some of \
                                  the clients in `CLIENT LIST`";

/// A client, and the provider of its credentials where they change.
#[derive(Clone)]
pub(super) struct Endpoint {
    client: Client,
    /// In place of the user and the password of the client.
    credentials: Option<CredentialsProvider>,
}

impl Endpoint {
    pub(super) fn new(client: Client, credentials: Option<CredentialsProvider>) -> Self {
        Self {
            client,
            credentials,
        }
    }

    /// Whether credentials that are refused may be followed by others.
    pub(super) fn changes(&self) -> bool {
        self.credentials.is_some()
    }

    /// Connects by a client with the credentials of this moment.
    ///
    /// The outer error is that of the provider.
    pub(super) async fn log_in<T, F>(
        &self,
        patience: Duration,
        connect: impl Fn(Client) -> F,
    ) -> Result<RedisResult<T>, ProviderError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let Some(provider) = &self.credentials else {
            return Ok(connect(self.client.clone()).await);
        };
        let connect = |credentials| connect(self.client_with(credentials));
        let attempts = provider.log_in(patience, connect, is_unknown_user);
        timeout(patience, attempts)
            .await
            .unwrap_or_else(|_| Ok(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn client_with(&self, credentials: Credentials) -> Client {
        let (user, password) = credentials.into_parts();
        let info = self.client.get_connection_info().clone();
        let mut settings = info.redis_settings().clone().set_password(password);
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        // The address has been parsed, and a client does nothing else with it.
        Client::open(info.set_redis_settings(settings)).unwrap_or_else(|_| self.client.clone())
    }
}

/// Whether the server does not accept the user or the password, or requires them.
pub(super) fn is_unknown_user(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        || error.kind() == ErrorKind::AuthenticationFailed
}

/// Whether the connection is beyond `maxclients`. The error arrives as the reply to the first command.
pub(super) fn has_no_room(error: &RedisError) -> bool {
    // A node of a cluster says "max number of clients + cluster connections reached".
    says(error, "max number of clients")
}

/// Whether the server is a replica: after a failover, another server is the primary.
pub(super) fn is_replica_error(error: &RedisError) -> bool {
    // On Redis 6, the error of a script has the code of its cause only in its text.
    let of_script = ["READONLY", "MASTERDOWN"];
    matches!(error.code(), Some("READONLY" | "MASTERDOWN" | "UNBLOCKED"))
        || of_script.iter().any(|code| says(error, code))
}

fn says(error: &RedisError, words: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(words))
}
