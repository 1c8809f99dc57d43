//! The settings of a connection to a broker, before it is made.

use std::fmt;
use std::marker::PhantomData;

#[cfg(feature = "rabbitmq-tls")]
use idem_runtime::__private::Certificates;
use idem_runtime::credentials::CredentialsProvider;

use crate::delivery::BrokerError;

/// Connects a source with changing credentials, or certificates of its own.
///
/// Made by `builder` of the source, which connects with the login of its URL otherwise.
#[must_use = "a builder does nothing until it connects"]
pub struct SourceBuilder<S> {
    pub(crate) url: String,
    /// Of the queue; of stream and durable; of stream and group.
    pub(crate) names: [String; 2],
    pub(crate) credentials: Option<CredentialsProvider>,
    #[cfg(feature = "rabbitmq-tls")]
    pub(crate) certificates: Certificates,
    source: PhantomData<fn() -> S>,
}

/// A source that a builder connects.
pub trait Connect: Sized {
    #[doc(hidden)]
    fn connect_by(
        builder: SourceBuilder<Self>,
    ) -> impl Future<Output = Result<Self, BrokerError>> + Send;
}

impl<S> SourceBuilder<S> {
    pub(crate) fn new(url: &str, names: [String; 2]) -> Self {
        Self {
            url: url.to_owned(),
            names,
            credentials: None,
            #[cfg(feature = "rabbitmq-tls")]
            certificates: Certificates::default(),
            source: PhantomData,
        }
    }

    /// The provider of each connection's credentials, in place of the URL's.
    ///
    /// For passwords that change, and tokens that expire: see [`credentials`](idem_runtime::credentials). It may take
    /// 2.5 s, and 5 s for `RabbitMQ`. A server that refuses the credentials of two calls counts as down. For
    /// NATS, a password without a user name is a token.
    ///
    /// ```no_run
    /// # #[cfg(feature = "nats")]
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use idem_consumers::JetStream;
    /// use idem_runtime::credentials::Credentials;
    ///
    /// let bills = JetStream::builder("nats://nats.example", "bills", "collectors")
    ///     .credentials(|| async {
    ///         let password = tokio::fs::read_to_string("/run/secrets/nats").await?;
    ///         Ok::<_, std::io::Error>(Credentials::new(password.trim_end()).user("collector"))
    ///     })
    ///     .connect()
    ///     .await?;
    /// # drop(bills); Ok(()) }
    /// ```
    pub fn credentials(mut self, provider: impl Into<CredentialsProvider>) -> Self {
        self.credentials = Some(provider.into());
        self
    }
}

impl<S: Connect> SourceBuilder<S> {
    /// Connects, as `connect` of the source does.
    ///
    /// # Errors
    ///
    /// As `connect` of the source; the provider of credentials fails; a certificate or key is none.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn connect(self) -> Result<S, BrokerError> {
        S::connect_by(self).await
    }
}

/// Without the URL, which may have a password.
impl<S> fmt::Debug for SourceBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceBuilder")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}
