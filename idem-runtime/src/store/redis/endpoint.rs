//! A server's address and settings, and the credentials of connections to it.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult};
use tokio::time::timeout;

use super::failure::is_unknown_user;
use crate::env::credentials::{Credentials, CredentialsProvider};
use crate::store::{StoreError, StoreErrorKind};

/// Host and port of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Parses the address in `MOVED 1234 host:port`. Without a host it is that of the sender.
    pub(super) fn parse(text: &str, said_by: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok()?;
        Some(said_by.named(host, port))
    }

    /// The address of a node, as this node reports it.
    ///
    /// A node that does not know its own name sends none, or a question mark.
    pub(super) fn named(&self, host: &str, port: u16) -> Self {
        let host = match host.trim_matches(['[', ']']) {
            "" | "?" => &self.host,
            host => host,
        };
        Self {
            host: host.to_owned(),
            port,
        }
    }

    /// The address of a connection; `None` for a socket file.
    pub(super) fn of(info: &ConnectionInfo) -> Option<Self> {
        let (host, port) = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (host.clone(), *port)
            }
            _ => return None,
        };
        Some(Self { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The server's address, for a message: host and port, or the path of its socket file.
pub(super) fn place(client: &Client) -> String {
    let info = client.get_connection_info();
    match Address::of(info) {
        Some(address) => address.to_string(),
        None => info.addr().to_string(),
    }
}

/// A client with these settings for the server at another address.
fn client_at(like: &ConnectionInfo, at: &Address) -> Result<Client, StoreError> {
    let mut address = like.addr().clone();
    match &mut address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            (*host, *port) = (at.host.clone(), at.port);
        }
        _ => address = ConnectionAddr::Tcp(at.host.clone(), at.port),
    }
    Client::open(like.clone().set_addr(address)).map_err(|_| {
        StoreError::new(
            StoreErrorKind::Protocol,
            format!("Redis names a server at `{at}`, which is no address"),
        )
    })
}

/// A client with its TLS, and the provider of changing credentials.
#[derive(Clone)]
pub(crate) struct Endpoint {
    client: Client,
    #[cfg(feature = "redis-tls")]
    tls: Option<Arc<rustls::ClientConfig>>,
    /// In place of the user and the password of the client.
    credentials: Option<CredentialsProvider>,
    /// Whether a server has accepted credentials of the provider. Shared by its clones.
    accepted: Arc<AtomicBool>,
}

impl Endpoint {
    pub(crate) fn new(client: Client, credentials: Option<CredentialsProvider>) -> Self {
        Self {
            client,
            #[cfg(feature = "redis-tls")]
            tls: None,
            credentials,
            accepted: Arc::default(),
        }
    }

    #[cfg(feature = "redis-tls")]
    pub(super) fn with_tls(mut self, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        self.tls = tls;
        self
    }

    #[cfg(feature = "redis-tls")]
    pub(super) fn tls(&self) -> Option<Arc<rustls::ClientConfig>> {
        self.tls.clone()
    }

    /// The server at another address, with these settings and credentials.
    pub(super) fn at(&self, at: &Address) -> Result<Self, StoreError> {
        Ok(Self {
            client: client_at(self.get_connection_info(), at)?,
            ..self.clone()
        })
    }

    /// Whether refused credentials are transient, because earlier ones were accepted.
    pub(crate) fn was_accepted(&self) -> bool {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Whether credentials that are refused may be followed by others.
    pub(crate) fn changes(&self) -> bool {
        self.credentials.is_some()
    }

    /// Connects by a client with the credentials of this moment.
    ///
    /// The outer error is that of the provider.
    pub(crate) async fn log_in<T, F>(
        &self,
        connect_timeout: Duration,
        connect: impl Fn(Client) -> F,
    ) -> Result<RedisResult<T>, StoreError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let Some(provider) = &self.credentials else {
            return Ok(connect(self.client.clone()).await);
        };
        let connect = |credentials| connect(self.client_with(credentials));
        let attempts = provider.log_in(connect_timeout, connect, is_unknown_user);
        let connected = timeout(connect_timeout, attempts)
            .await
            .unwrap_or_else(|_| Ok(Err(io::Error::from(io::ErrorKind::TimedOut).into())));
        if let Ok(Ok(_)) = connected {
            self.accepted.store(true, Ordering::Relaxed);
        }
        connected.map_err(|error| {
            let what = format!("connecting to Redis at {}", place(self));
            StoreError::no_credentials(&what, error)
        })
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

impl Deref for Endpoint {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&place(self)).finish()
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    fn of(url: &str) -> Option<Address> {
        Address::of(&url.into_connection_info().unwrap())
    }

    #[test]
    fn a_client_of_another_address_keeps_everything_else() {
        let like = "redis://user:secret@10.0.0.1:7000/3?protocol=resp3";
        let like = like.into_connection_info().unwrap();
        let at = of("redis://10.0.0.2:7001").unwrap();
        let client = client_at(&like, &at).unwrap();
        let info = client.get_connection_info();
        assert_eq!(Address::of(info), Some(at));
        assert_eq!(
            format!("{:?}", info.redis_settings()),
            format!("{:?}", like.redis_settings())
        );
    }

    #[test]
    fn a_socket_file_has_no_address() {
        assert_eq!(of("redis+unix:///run/redis.sock"), None);
    }
}
