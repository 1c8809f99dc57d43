//! A connection that is made when it is needed, and made anew when it is of no more use.

use std::fmt;
use std::time::Duration;

use idem_runtime::store::{StoreError, StoreErrorKind};
use tokio::sync::Mutex;
use tokio::time::timeout;
use zookeeper_client::{Client, Error};

use super::failure::store_error;

/// How long the server keeps a silent session. Nothing hangs on it: records are no ephemeral nodes.
const SESSION: Duration = Duration::from_secs(20);

/// The longest that an operation takes, connecting included.
const PATIENCE: Duration = Duration::from_secs(20);

/// A session with `ZooKeeper`, shared by all who use this value.
///
/// It is made in the runtime of whoever comes first.
pub struct Link {
    servers: String,
    client: Mutex<Option<Client>>,
}

impl Link {
    /// A link to `host:port,host:port/chroot`; nothing is connected yet.
    #[must_use]
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            client: Mutex::new(None),
        }
    }

    /// Does `work`, called `what` in errors.
    ///
    /// # Errors
    ///
    /// [`StoreError`], also when it takes longer than 20 seconds. Whether it happened is then open.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves open whether the work happened.
    pub async fn run<T, F>(
        &self,
        what: &str,
        work: impl FnOnce(Client) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut used = None;
        let attempt = async {
            let client = self.client().await?;
            used = Some(client.clone());
            work(client).await
        };
        let error = match timeout(PATIENCE, attempt).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => error,
            Err(_) => Error::Timeout,
        };
        let error = store_error(what, error);
        if let Some(used) = used
            && error.kind() != StoreErrorKind::Refused
        {
            // A client takes itself up again after some failures and not after others. A new one
            // is as good after all of them.
            self.forget(&used).await;
        }
        Err(error)
    }

    async fn client(&self) -> Result<Client, Error> {
        let mut slot = self.client.lock().await;
        if let Some(client) = &*slot {
            return Ok(client.clone());
        }
        let connector = Client::connector()
            .with_session_timeout(SESSION)
            .with_fail_eagerly();
        let client = connector.connect(&self.servers).await?;
        *slot = Some(client.clone());
        Ok(client)
    }

    async fn forget(&self, used: &Client) {
        let mut slot = self.client.lock().await;
        // Somebody may have been quicker, and that one's client is a new one.
        slot.take_if(|client| client.session_id() == used.session_id());
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}
