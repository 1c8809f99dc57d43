//! The settings of a Redis store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::check::Server;
use super::link::{self, Link};
use super::script::Scripts;
use super::subscriber::Subscriber;
use super::{Inner, RedisStore};
use crate::store::StoreError;

/// Sets up a [`RedisStore`].
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    url: String,
    connect_timeout: Duration,
    response_timeout: Duration,
    max_record_bytes: usize,
    allow_eviction: bool,
    checked_prefix: String,
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("RedisStoreBuilder")
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

impl RedisStoreBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            max_record_bytes: 8 << 20,
            allow_eviction: false,
            checked_prefix: "idem".to_owned(),
        }
    }

    /// How long making a connection may take; default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a reply may take before the command is sent again; default 500 ms. After three
    /// silences in a row the connection is made anew.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// The largest record that is read, in bytes; default 8 MiB. A larger one is refused with
    /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) and left alone.
    pub fn max_record_bytes(mut self, max_record_bytes: usize) -> Self {
        self.max_record_bytes = max_record_bytes;
        self
    }

    /// Accepts a server that evicts keys when its memory is full. The guarantee then ends where
    /// eviction begins.
    pub fn allow_eviction(mut self) -> Self {
        self.allow_eviction = true;
        self
    }

    /// Where the user's rights are tried when the store connects; default `idem`, the prefix of an
    /// engine that is given no other. What is missing there is a warning, and no more.
    pub fn checked_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.checked_prefix = prefix.into();
        self
    }

    /// Connects, and looks at the server.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] if the server does not answer, [`Refused`] if the URL is wrong, the server
    /// refuses the user, is too old or evicts keys.
    ///
    /// [`Unavailable`]: crate::store::StoreErrorKind::Unavailable
    /// [`Refused`]: crate::store::StoreErrorKind::Refused
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let client = link::client(&self.url)?;
        let link = |client| Link::new(client, self.connect_timeout, self.response_timeout);
        let (link, own) = (link(client.clone()), link(client.clone()));
        let server = Server::ask(&link, &self.checked_prefix).await?;
        server.refuse(self.allow_eviction)?;
        let sharded = server.publish() == "SPUBLISH";
        let subscriber =
            Subscriber::new(client, sharded, self.connect_timeout, self.response_timeout);
        Ok(RedisStore(Arc::new(Inner {
            scripts: Scripts::new(&server),
            link,
            own,
            subscriber,
            server,
            max_record_bytes: self.max_record_bytes,
        })))
    }
}
