//! A reconnecting connection to Redis, and the classes of its errors.

use std::io;
use std::time::Duration;

use idem_runtime::credentials::{Credentials, CredentialsProvider};
#[cfg(feature = "redis-streams-tls")]
use redis::ConnectionAddr;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError};
#[cfg(feature = "redis-streams-tls")]
use rustls::crypto::{CryptoProvider, ring};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::delivery::BrokerError;

/// The time that a command may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

const NO_ROOM: &str = "Redis takes no more connections (`maxclients`); raise the limit, or close some of the clients in \
                       `CLIENT LIST`";

const REFUSED: &str = "Redis does not accept the credentials of the provider, or takes no more connections \
                       (`maxclients`); check its source of secrets, and the password of the user";

pub(super) struct Link {
    client: Client,
    /// In place of the user and the password of the client.
    credentials: Option<CredentialsProvider>,
    /// The time for the reply to a command.
    patience: Duration,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Link {
    pub(super) fn new(
        client: Client,
        credentials: Option<CredentialsProvider>,
        patience: Duration,
    ) -> Self {
        Self {
            client,
            credentials,
            patience,
            connection: Mutex::new(None),
        }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        // rustls panics without a provider in a process whose crates have several. An earlier choice stays.
        #[cfg(feature = "redis-streams-tls")]
        if matches!(
            self.client.get_connection_info().addr(),
            ConnectionAddr::TcpTls { .. }
        ) && CryptoProvider::get_default().is_none()
        {
            drop(ring::default_provider().install_default());
        }
        let connect = |client: Client| async move {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(PATIENCE))
                .set_response_timeout(Some(self.patience));
            (client.get_multiplexed_async_connection_with_config(&config)).await
        };
        let made = match &self.credentials {
            None => connect(self.client.clone()).await,
            Some(provider) => {
                let connect = |credentials| connect(self.client_with(credentials));
                let attempts = provider.log_in(PATIENCE, connect, is_unknown_user);
                let made = timeout(PATIENCE, attempts).await.map_err(io::Error::from)?;
                made.map_err(io::Error::other)?
            }
        };
        Ok(connection.insert(made?).clone())
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

    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        let result = async { command.query_async(&mut self.connection().await?).await };
        let result = result.await.map_err(|error| match error {
            // The next credentials may be others.
            error if self.credentials.is_some() && is_unknown_user(&error) => {
                RedisError::from(io::Error::other(REFUSED))
            }
            error => error,
        });
        if let Err(error) = &result {
            self.leave_if_lost(error).await;
        }
        result
    }

    /// Leaves a lost server, and a replica: after a failover the address may be that of the new primary.
    pub(super) async fn leave_if_lost(&self, error: &RedisError) {
        // On Redis 6, the error of a script has the code of its cause only in its text.
        let of_script = ["READONLY", "MASTERDOWN"];
        if error.is_unrecoverable_error()
            || error.is_timeout()
            || error.is_io_error()
            || matches!(error.code(), Some("READONLY" | "MASTERDOWN" | "UNBLOCKED"))
            || of_script.iter().any(|code| says(error, code))
        {
            *self.connection.lock().await = None;
        }
    }
}

/// Whether the server requires a login, or refuses user or password.
fn is_unknown_user(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        || error.kind() == ErrorKind::AuthenticationFailed
}

/// Whether the connection is beyond `maxclients`. The error arrives as the reply to the first command.
fn has_no_room(error: &RedisError) -> bool {
    // A node of a cluster says "max number of clients + cluster connections reached".
    says(error, "max number of clients")
}

fn says(error: &RedisError, words: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(words))
}

/// Whether the server refuses, and would refuse again.
pub(super) fn lasts(error: &RedisError) -> bool {
    let refuses = matches!(error.code(), Some("NOPERM" | "WRONGTYPE" | "ERR"));
    // Redis 6 wraps the refusal of a command in a script.
    let refuses = refuses || says(error, "can't run this command");
    !has_no_room(error) && (refuses || is_unknown_user(error))
}

/// The error of the first command. The reply by which a server without a place refuses it may be lost, and the client
/// library does not repeat that to `AUTH`.
pub(super) fn connect_error(error: RedisError) -> BrokerError {
    let what = match error.kind() {
        // An address without a server counts as a dropped connection in the client library.
        _ if error.is_connection_dropped() && !error.is_connection_refusal() => {
            "Redis closed the connection at once, as it does when"
        }
        ErrorKind::AuthenticationFailed => {
            "Redis does not accept the user or password of the URL, or"
        }
        _ => return broker_error(error),
    };
    BrokerError::new(format!("{what} {NO_ROOM}"))
}

pub(super) fn broker_error(error: RedisError) -> BrokerError {
    if has_no_room(&error) {
        BrokerError::new(NO_ROOM)
    } else {
        BrokerError::new(error)
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    #[test]
    fn a_server_without_room_for_another_client_is_asked_again() {
        let says = |line: &str| {
            let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            let Value::ServerError(error) = reply else {
                panic!("{line} is an error")
            };
            lasts(&error.into())
        };
        assert!(!says("ERR max number of clients reached"));
        assert!(!says(
            "ERR max number of clients + cluster connections reached"
        ));
        assert!(!says("LOADING Redis is loading the dataset in memory"));
        assert!(!says("NOREPLICAS Not enough good replicas to write."));
        assert!(!says(
            "OOM command not allowed when used memory > 'maxmemory'."
        ));
        assert!(says("ERR unknown command 'XREADGROUP'"));
        assert!(says("WRONGPASS invalid username-password pair"));
    }
    #[test]
    fn a_server_that_is_not_there_has_not_closed_a_connection() {
        for (kind, part) in [
            (io::ErrorKind::ConnectionRefused, "connection refused"),
            (io::ErrorKind::NotFound, "entity not found"),
            (io::ErrorKind::ConnectionReset, "`maxclients`"),
        ] {
            let error = connect_error(io::Error::from(kind).into()).to_string();
            assert!(error.contains(part), "{kind:?}: {error}");
        }
    }
}
