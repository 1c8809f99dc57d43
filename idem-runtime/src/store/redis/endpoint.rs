//! A server's address and settings, and the credentials of connections to it.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Client, RedisResult};
use tokio::time::timeout;

use super::address::{Address, client_at, place};
use super::failure::is_unknown_user;
use crate::env::credentials::{Credentials, CredentialsProvider};
use crate::store::StoreError;

/// A client, the provider of its credentials where they change, and its TLS.
#[derive(Clone)]
pub(crate) struct Endpoint {
    client: Client,
    #[cfg(feature = "redis-tls")]
    tls: Option<Arc<rustls::ClientConfig>>,
    /// In place of the user and the password of the client.
    credentials: Option<CredentialsProvider>,
    /// Whether a server has accepted credentials of the provider, which are right at times then. Shared by its clones.
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

    /// Whether a refusal of credentials is transient, because a server has accepted earlier ones of the provider.
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
