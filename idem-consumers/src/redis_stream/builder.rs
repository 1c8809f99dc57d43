//! The settings of the connection to a Redis server with streams.

use super::RedisStream;
use crate::builder::SourceBuilder;
use crate::delivery::BrokerError;

/// Connects a [`RedisStream`] with credentials that change.
pub type RedisStreamBuilder = SourceBuilder<RedisStream>;

impl RedisStream {
    /// Begins a connection with credentials that change.
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
    pub fn builder(
        url: &str,
        stream: impl Into<String>,
        group: impl Into<String>,
    ) -> RedisStreamBuilder {
        SourceBuilder::new(url, [stream.into(), group.into()])
    }
}

impl RedisStreamBuilder {
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
        RedisStream::connect_by(self.url, self.names.into(), self.credentials).await
    }
}
