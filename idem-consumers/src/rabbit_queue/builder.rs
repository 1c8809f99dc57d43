//! The settings of the connection to a `RabbitMQ` broker.

use std::sync::Arc;

use lapin::types::ShortString;
use lapin::uri::AMQPUri;
use tokio::time::timeout;

use super::{
    CONSUMER_TIMEOUT, HEARTBEAT, PATIENCE, PREFETCH, RabbitQueue, RabbitSettings, expect_queue,
};
use crate::builder::{Connect, SourceBuilder};
use crate::delivery::BrokerError;
use crate::source_events::SourceEvents;

/// The error of a broker that is silent for [`PATIENCE`].
pub(super) const SILENT: &str = "the RabbitMQ broker does not answer";

/// Connects a [`RabbitQueue`] with certificates, or with changing credentials.
///
/// ```no_run
/// use idem_consumers::RabbitQueue;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let url = "amqps://collector:secret@broker.example/%2f";
/// let bills = RabbitQueue::builder(url, "bills");
/// # #[cfg(feature = "rabbitmq-tls")]
/// let bills = bills.root_certificate(std::fs::read("/etc/ssl/broker-ca.pem")?);
/// let bills = bills.connect().await?;
/// # drop(bills); Ok(()) }
/// ```
pub type RabbitQueueBuilder = SourceBuilder<RabbitQueue>;

impl RabbitQueue {
    /// Connects, and checks that the queue is there.
    ///
    /// # Errors
    ///
    /// The broker cannot be reached within 10 s, has a certificate that is not trusted, or refuses; there is no such
    /// queue.
    pub async fn connect(url: &str, queue: impl Into<String>) -> Result<Self, BrokerError> {
        Self::builder(url, queue).connect().await
    }

    /// Begins a connection with certificates, or with changing credentials.
    pub fn builder(url: &str, queue: impl Into<String>) -> RabbitQueueBuilder {
        SourceBuilder::new(url, [queue.into(), String::new()])
    }
}

#[cfg(feature = "rabbitmq-tls")]
impl RabbitQueueBuilder {
    /// Certificate authorities to trust in place of the system's, as PEM. For `amqps://`.
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.root_certificate = Some(pem.into());
        self
    }

    /// Certificate and key of the consumer, as PEM. For `amqps://`.
    ///
    /// A broker that does not accept it closes the connection; its log has the reason.
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.client = Some((certificate.into(), key.into()));
        self
    }
}

impl Connect for RabbitQueue {
    async fn connect_by(builder: RabbitQueueBuilder) -> Result<Self, BrokerError> {
        let [queue, _] = builder.names;
        // The error of the parser may have parts of the URL.
        let mut uri: AMQPUri = builder
            .url
            .parse()
            .map_err(|_| BrokerError::new("the URL of the RabbitMQ broker is none"))?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT);
        #[cfg(feature = "rabbitmq-tls")]
        let tls =
            super::tls::RabbitTls::new(&uri, &builder.certificates).map_err(BrokerError::new)?;
        #[cfg(not(feature = "rabbitmq-tls"))]
        if uri.scheme == lapin::uri::AMQPScheme::AMQPS {
            // Without a TLS feature of its own, lapin would send the password in the clear.
            return Err(BrokerError::new(
                "the RabbitMQ URL begins with `amqps://`, which needs the feature `rabbitmq-tls` of `idem-consumers`",
            ));
        }
        let dead_routing_key = ShortString::try_new(format!("{queue}.dead"));
        let settings = RabbitSettings {
            uri,
            credentials: builder.credentials,
            #[cfg(feature = "rabbitmq-tls")]
            tls,
            dead_exchange: ShortString::default(),
            dead_routing_key: dead_routing_key.map_err(BrokerError::new)?,
            queue: ShortString::try_new(queue).map_err(BrokerError::new)?,
            prefetch: PREFETCH,
            consumer_timeout: CONSUMER_TIMEOUT,
        };
        let connected = async {
            let connection = settings.connect().await?;
            let channel = connection.create_channel().await?;
            expect_queue(&channel, &settings.queue).await
        };
        match timeout(PATIENCE, connected).await {
            Ok(Ok(())) => Ok(Self {
                settings: Arc::new(settings),
                open: None,
                next: None,
                is_cancelled: false,
                events: SourceEvents::default(),
            }),
            Ok(Err(error)) => Err(BrokerError::new(error)),
            Err(_) => Err(BrokerError::new(SILENT)),
        }
    }
}

#[cfg(all(test, not(feature = "rabbitmq-tls")))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_url_of_tls_is_refused_without_the_feature_for_it() {
        let url = "amqps://collector:secret@127.0.0.1:1/%2f";
        let error = RabbitQueue::connect(url, "bills").await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("`rabbitmq-tls`"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
