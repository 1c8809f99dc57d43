//! A connection that is made on demand, and replaced after a break.

use std::time::Duration;

use idem_runtime::store::{StoreError, StoreErrorKind};
use tokio::select;
use tokio::sync::Mutex;
use tokio::time::timeout;
use zookeeper_client::{Client, Error, SessionState};

use super::failure::store_error;

/// Session timeout of the server. No record depends on it, but a connection that is silent
/// for two fifths of it counts as lost.
const SESSION: Duration = Duration::from_secs(10);

/// Deadline of an operation, connecting included.
const PATIENCE: Duration = Duration::from_secs(10);

/// A session with `ZooKeeper`, shared by all users of this value.
///
/// It is created in the runtime of the first caller.
#[derive(Debug)]
pub(super) struct Link {
    servers: String,
    client: Mutex<Option<Client>>,
}

impl Link {
    /// A link to `host:port,host:port/chroot`; it does not connect yet.
    pub(super) fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            client: Mutex::new(None),
        }
    }

    /// Runs `work`, called `what` in errors.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves open whether the work happened.
    pub(super) async fn run<T, F>(
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
                // An unsent request would wait for the next connection.
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
        // A disconnected client reconnects with growing back-off, or has given up. A new client
        // connects now.
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
        // The holder of the lock is about to check the client too, or creates a new one.
        if let Ok(mut slot) = self.client.try_lock() {
            slot.take_if(|client| client.session_id() == used.session_id());
        }
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
