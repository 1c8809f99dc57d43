//! The settings of the connection to a Redis server with streams.

use std::fmt;

use super::RedisStream;
use crate::delivery::BrokerError;
use idem_runtime::credentials::CredentialsProvider;

/// Connects a [`RedisStream`] with credentials that change.
///
/// ```no_run
/// use idem_consumers::RedisStream;
/// use idem_runtime::credentials::Credentials;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let bills = RedisStream::builder("redis://collector@redis.example", "bills", "collectors")
///     .credentials(|| async {
///         let password = tokio::fs::read_to_string("/run/secrets/redis").await?;
///         Ok::<_, std::io::Error>(Credentials::new(password.trim_end()))
///     })
///     .connect()
///     .await?;
/// # drop(bills); Ok(()) }
/// ```
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStreamBuilder {
    url: String,
    stream: String,
    group: String,
    credentials: Option<CredentialsProvider>,
}

impl RedisStream {
    /// Begins a connection with credentials that change.
    pub fn builder(
        url: &str,
        stream: impl Into<String>,
        group: impl Into<String>,
    ) -> RedisStreamBuilder {
        RedisStreamBuilder {
            url: url.to_owned(),
            stream: stream.into(),
            group: group.into(),
            credentials: None,
        }
    }
}

impl RedisStreamBuilder {
    /// The provider of the credentials of each connection, in place of those of the URL.
    ///
    /// For passwords that change, and tokens that expire: see [`credentials`](idem_runtime::credentials). It may take 2.5 s. A
    /// server that refuses the credentials of two calls counts as one that is down.
    pub fn credentials(mut self, provider: impl Into<CredentialsProvider>) -> Self {
        self.credentials = Some(provider.into());
        self
    }

    /// Connects, and creates stream and group where they are not there.
    ///
    /// # Errors
    ///
    /// As [`RedisStream::connect`]; the provider of credentials fails.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn connect(self) -> Result<RedisStream, BrokerError> {
        RedisStream::connect_by(self.url, (self.stream, self.group), self.credentials).await
    }
}

/// Without the URL, which may have a password.
impl fmt::Debug for RedisStreamBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStreamBuilder")
            .field("stream", &self.stream)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
