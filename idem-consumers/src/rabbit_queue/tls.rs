//! TLS to a `RabbitMQ` broker.
//!
//! lapin gets a stream whose handshake is done: of itself it connects to `amqps://` without TLS where its feature for it
//! is off, and where it is on, it trusts the system's authorities beside the given one.

use std::future::ready;
use std::io::{Error, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_compat::{Compat, CompatExt};
use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_core::Stream;
use futures_io::{AsyncRead, AsyncWrite};
use idem_runtime::__private::Certificates;
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type RabbitStream = Compat<TlsStream<TcpStream>>;

/// The settings of the TLS connections to a broker.
#[derive(Clone)]
pub(super) struct RabbitTls(Arc<ClientConfig>);

impl RabbitTls {
    /// The settings for a URL; none if it is one without TLS.
    pub(super) fn new(uri: &AMQPUri, of: &Certificates) -> Result<Option<Self>, String> {
        if uri.scheme != AMQPScheme::AMQPS {
            return if of.is_default() {
                Ok(None)
            } else {
                let problem =
                    "certificates are set, but the RabbitMQ URL does not begin with `amqps://`";
                Err(problem.to_owned())
            };
        }
        Ok(Some(Self(of.client_config()?)))
    }

    pub(super) async fn connect(
        &self,
        uri: AMQPUri,
        properties: ConnectionProperties,
    ) -> lapin::Result<Connection> {
        let runtime = RuntimeParts::new(Tokio::current(), TlsReactor(Tokio::current()));
        let tls = self.clone();
        let open = async move |uri: AMQPUri, _| {
            let stream = tls.open(&uri.authority.host, uri.authority.port).await?;
            Ok(AsyncTcpStream::Plain(stream.compat()))
        };
        Connection::connector(uri, Runtime::new(runtime), open, properties).await
    }

    async fn open(&self, host: &str, port: u16) -> Result<TlsStream<TcpStream>, Error> {
        let host = host.trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Error::other("the host of the RabbitMQ URL is none that a certificate can name")
        })?;
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let connected = TlsConnector::from(Arc::clone(&self.0)).connect(name, stream);
        connected.await.map_err(|error| match advice(&error) {
            Some(advice) => Error::new(error.kind(), advice),
            None => error,
        })
    }
}

/// The advice for a failed handshake.
fn advice(error: &Error) -> Option<&'static str> {
    use CertificateError as Of;
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(Of::UnknownIssuer) => {
            "the certificate of RabbitMQ comes from an authority that is not trusted; give its \
             certificate to `RabbitQueueBuilder::root_certificate`, and be sure that this is your broker"
        }
        rustls::Error::InvalidCertificate(
            Of::NotValidForName | Of::NotValidForNameContext { .. },
        ) => "the certificate of RabbitMQ is for another name than the host of the URL",
        rustls::Error::InvalidCertificate(
            Of::Expired
            | Of::ExpiredContext { .. }
            | Of::NotValidYet
            | Of::NotValidYetContext { .. },
        ) => {
            "the certificate of RabbitMQ has expired, or is not valid yet; look at the clock, and renew it"
        }
        rustls::Error::InvalidCertificate(_) => "the certificate of RabbitMQ is not valid",
        rustls::Error::InvalidMessage(_) => {
            "RabbitMQ does not speak TLS at this port; that of TLS is 5671 by default"
        }
        _ => return None,
    })
}

debug_fields!(RabbitTls _this {});

/// Tokio, with streams over TLS. lapin uses its timers alone.
#[derive(Clone, Debug)]
struct TlsReactor(Tokio);

impl Reactor for TlsReactor {
    type TcpStream = RabbitStream;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + Send + 'static>(
        &self,
        _: H,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static, Error> {
        Err::<RabbitStream, _>(unsupported())
    }

    fn sleep(&self, time: Duration) -> Self::Sleep {
        self.0.sleep(time)
    }

    fn interval(&self, time: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(time)
    }

    fn tcp_connect_addr(
        &self,
        _: SocketAddr,
    ) -> impl Future<Output = Result<RabbitStream, Error>> + Send + 'static {
        ready(Err(unsupported()))
    }
}

fn unsupported() -> Error {
    std::io::ErrorKind::Unsupported.into()
}
