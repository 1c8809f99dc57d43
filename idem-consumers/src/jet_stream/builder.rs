//! The settings of the connection to a NATS server.

use async_nats::{Auth, AuthError, ConnectOptions};

use super::{JetStream, PATIENCE};
use crate::builder::SourceBuilder;
use crate::delivery::BrokerError;
use idem_runtime::credentials::CredentialsProvider;

/// Connects a [`JetStream`] with credentials that change.
pub type JetStreamBuilder = SourceBuilder<JetStream>;

impl JetStream {
    /// Begins a connection with credentials that change.
    ///
    /// ```no_run
    /// use idem_consumers::JetStream;
    /// use idem_runtime::credentials::Credentials;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let bills = JetStream::builder("nats://nats.example", "bills", "collectors")
    ///     .credentials(|| async {
    ///         let password = tokio::fs::read_to_string("/run/secrets/nats").await?;
    ///         Ok::<_, std::io::Error>(Credentials::new(password.trim_end()).user("collector"))
    ///     })
    ///     .connect()
    ///     .await?;
    /// # drop(bills); Ok(()) }
    /// ```
    pub fn builder(
        url: &str,
        stream: impl Into<String>,
        durable: impl Into<String>,
    ) -> JetStreamBuilder {
        SourceBuilder::new(url, [stream.into(), durable.into()])
    }
}

impl JetStreamBuilder {
    /// Connects, and checks that the stream is there.
    ///
    /// # Errors
    ///
    /// As [`JetStream::connect`]; the provider of credentials fails.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn connect(self) -> Result<JetStream, BrokerError> {
        JetStream::connect_by(self.url, self.names.into(), self.credentials).await
    }
}

/// Options whose connections log in by this provider.
pub(super) fn options_by(provider: &CredentialsProvider) -> ConnectOptions {
    let provider = provider.clone();
    ConnectOptions::with_auth_callback(move |_| {
        let provider = provider.clone();
        // A task, because the client needs a future that is `Sync`.
        let called = tokio::spawn(async move { provider.credentials(PATIENCE).await });
        async move {
            let credentials = called.await.map_err(AuthError::new)?;
            let (user, password) = credentials.map_err(AuthError::new)?.into_parts();
            let mut auth = Auth::new();
            match user {
                Some(user) => (auth.username, auth.password) = (Some(user), Some(password)),
                None => auth.token = Some(password),
            }
            Ok(auth)
        }
    })
}
