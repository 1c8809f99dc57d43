//! A connection that is made when it is needed, and made anew when it is of no more use.

use std::fmt;
use std::time::Duration;

use idem_runtime::store::{StoreError, StoreErrorKind};
use tokio::select;
use tokio::sync::Mutex;
use tokio::time::timeout;
use zookeeper_client::{Client, Error, SessionState};

use super::failure::store_error;

/// How long the server keeps a silent session. No record hangs on it, but a connection that is silent
/// for two fifths of it counts as lost.
const SESSION: Duration = Duration::from_secs(10);

/// The longest that an operation takes, connecting included.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// [`StoreError`], also when it takes longer than 10 seconds. Whether it happened is then open.
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
            let mut state = client.state_watcher();
            select! {
                biased;
                done = work(client) => done,
                // What was not sent yet would wait for the next connection.
                _ = state.changed() => Err(Error::ConnectionLoss),
            }
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
            self.forget(&used);
        }
        Err(error)
    }

    async fn client(&self) -> Result<Client, Error> {
        let mut slot = self.client.lock().await;
        // One that is not connected tries again by itself, in longer and longer intervals, or has
        // given up. A new one tries now.
        if let Some(client) = &*slot
            && client.state() == SessionState::SyncConnected
        {
            return Ok(client.clone());
        }
        let connector = Client::connector()
            .with_session_timeout(SESSION)
            .with_fail_eagerly();
        let client = connector.connect(&self.servers).await?;
        *slot = Some(client.clone());
        Ok(client)
    }

    fn forget(&self, used: &Client) {
        // Whoever holds the lock is about to look at the client too, or makes a new one.
        if let Ok(mut slot) = self.client.try_lock() {
            slot.take_if(|client| client.session_id() == used.session_id());
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use idem_harness::ZooKeeperServer;

    use super::*;

    #[tokio::test]
    async fn a_client_without_a_connection_is_not_waited_for() {
        let server = ZooKeeperServer::start();
        let link = Link::new(server.addr().to_string());
        let ask = |client: Client| async move { client.check_stat("/").await };
        link.run("a question", ask).await.unwrap();
        let mut state = link.client().await.unwrap().state_watcher();
        server.kill();
        assert_eq!(state.changed().await, SessionState::Disconnected);
        let error = link.run("a question", ask).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(error.to_string().contains("no server answers"), "{error:?}");
        server.restart();
        link.run("a question", ask).await.unwrap();
    }
}
