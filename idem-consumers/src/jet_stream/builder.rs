//! The settings of the connection to a NATS server.

use std::fmt;

use async_nats::{Auth, AuthError, ConnectOptions};

use super::{JetStream, PATIENCE};
use crate::delivery::BrokerError;
use idem_runtime::credentials::CredentialsProvider;

/// Connects a [`JetStream`] with credentials that change.
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
#[must_use = "a builder does nothing until it connects"]
pub struct JetStreamBuilder {
    url: String,
    stream: String,
    durable: String,
    credentials: Option<CredentialsProvider>,
}

impl JetStream {
    /// Begins a connection with credentials that change.
    pub fn builder(
        url: &str,
        stream: impl Into<String>,
        durable: impl Into<String>,
    ) -> JetStreamBuilder {
        JetStreamBuilder {
            url: url.to_owned(),
            stream: stream.into(),
            durable: durable.into(),
            credentials: None,
        }
    }
}

impl JetStreamBuilder {
    /// The provider of the credentials of each connection, in place of those of the URL.
    ///
    /// For passwords that change, and tokens that expire: see [`credentials`](idem_runtime::credentials). Without a user name
    /// the password is a token. The provider may take 2.5 s. A server that refuses its credentials counts as one that
    /// is down.
    pub fn credentials(mut self, provider: impl Into<CredentialsProvider>) -> Self {
        self.credentials = Some(provider.into());
        self
    }

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
        JetStream::connect_by(self.url, (self.stream, self.durable), self.credentials).await
    }
}

/// Without the URL, which may have a password.
impl fmt::Debug for JetStreamBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamBuilder")
            .field("stream", &self.stream)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
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
