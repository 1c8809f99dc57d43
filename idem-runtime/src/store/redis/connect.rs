//! Sockets, TLS, and the handshake of the client library on them.

use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisError, RedisResult,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
#[cfg(feature = "redis-tls")]
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::endpoint::Endpoint;
use super::wire::ConnectionLimits;
use super::wire::{Published, Wire};
use crate::env::lock::Lock;
use crate::store::StoreError;

/// Connects and logs in, with the credentials of this moment.
///
/// The outer error is that of their provider.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    limits: ConnectionLimits,
    messages: Option<&UnboundedSender<Published>>,
) -> Result<RedisResult<Wire>, StoreError> {
    let connect = |client: Client| async move {
        let until = Instant::now() + limits.connect;
        let connecting = NewConnection {
            endpoint,
            info: client.get_connection_info(),
            until,
            limits,
            messages,
        };
        timeout_at(until, connecting.connect())
            .await
            .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    };
    endpoint.log_in(limits.connect, connect).await
}

/// An attempt to connect.
struct NewConnection<'a> {
    #[cfg_attr(
        not(feature = "redis-tls"),
        expect(dead_code, reason = "only TLS needs it")
    )]
    endpoint: &'a Endpoint,
    info: &'a ConnectionInfo,
    until: Instant,
    limits: ConnectionLimits,
    messages: Option<&'a UnboundedSender<Published>>,
}

impl NewConnection<'_> {
    async fn connect(&self) -> RedisResult<Wire> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = self
                    .first_of(host, *port, |stream| ready(Ok(stream)))
                    .await?;
                let (read, write) = logged_in(stream, self.info).await?.into_split();
                Ok(self.wire(read, write))
            }
            #[cfg(feature = "redis-tls")]
            ConnectionAddr::TcpTls { host, port, .. } => {
                let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
                let config = self.endpoint.tls().ok_or_else(unsupported)?;
                let name = host.clone();
                let open = move |stream| handshake(Arc::clone(&config), name.clone(), stream);
                let stream = self.first_of(host, *port, open).await?;
                let stream = logged_in(stream, self.info).await?;
                let (read, write) = tokio::io::split(stream);
                Ok(self.wire(read, write))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                let (read, write) = logged_in(stream, self.info).await?.into_split();
                Ok(self.wire(read, write))
            }
            _ => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
        }
    }

    fn wire<R, W>(&self, read: R, write: W) -> Wire
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Wire::new(read, write, self.limits, self.messages.cloned())
    }

    /// The stream to the first address with which `open` succeeds. All are tried at once, since one
    /// of them may be silent.
    async fn first_of<S, F>(
        &self,
        host: &str,
        port: u16,
        open: impl Fn(TcpStream) -> F + Clone + Send + 'static,
    ) -> RedisResult<S>
    where
        S: Send + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
    {
        let mut attempts = JoinSet::new();
        for address in tokio::net::lookup_host((host, port)).await? {
            let (settings, open) = (self.info.tcp_settings().clone(), open.clone());
            attempts.spawn(async move {
                let stream = TcpStream::connect(address).await;
                let stream = stream.map_err(|error| (false, error))?;
                set(&stream, &settings).map_err(|error| (false, error))?;
                open(stream).await.map_err(|error| (true, error))
            });
        }
        let mut failure = None;
        while let Ok(Some(attempt)) = timeout_at(self.until, attempts.join_next()).await {
            match attempt {
                Ok(Ok(stream)) => return Ok(stream),
                // The answer of a server is more informative than the absence of another.
                Ok(Err((false, _))) if failure.is_some() => {}
                Ok(Err((_, error))) => failure = Some(error),
                Err(_) => {}
            }
        }
        let failure = failure.unwrap_or_else(|| io::ErrorKind::TimedOut.into());
        Err(failure.into())
    }
}

fn set(stream: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    if let Some(timeout) = settings.user_timeout() {
        socket.set_tcp_user_timeout(Some(timeout))?;
    }
    Ok(())
}

/// The handshake of TLS with a server of this name.
#[cfg(feature = "redis-tls")]
async fn handshake(
    config: Arc<rustls::ClientConfig>,
    host: String,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = rustls::pki_types::ServerName::try_from(host).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}

/// Logs in: sends the version of the protocol, the password and the database.
///
/// The client library does it on a loan of the socket, so that its connections and these log in alike.
async fn logged_in<S>(stream: S, info: &ConnectionInfo) -> RedisResult<S>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let lender = Loan(Arc::new(Lock::new(Some(stream))));
    let (settings, config) = (info.redis_settings(), AsyncConnectionConfig::new());
    let loan = Loan(Arc::clone(&lender.0));
    drop(MultiplexedConnection::new_with_config(settings, loan, config).await?);
    let stream = lender.0.lock().take();
    stream.ok_or_else(|| RedisError::from(io::Error::from(io::ErrorKind::NotConnected)))
}

/// A socket that is given back.
struct Loan<S>(Arc<Lock<Option<S>>>);

impl<S> Loan<S> {
    fn with<T>(&self, poll: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>>
    where
        S: Unpin,
    {
        match &mut *self.0.lock() {
            Some(stream) => poll(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Loan<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(cx, buffer))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Loan<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(cx))
    }
}
