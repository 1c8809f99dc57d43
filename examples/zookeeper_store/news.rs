//! Receives changes from the server, and notifies watchers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use idem_runtime::store::author::{Feed, Watch, Watchers};
use idem_runtime::store::{RecordKey, StoreError};
use tokio::task::JoinHandle;
use zookeeper_client::{AddWatchMode, Client, EventType, PersistentWatcher, SessionState};

use super::link::Link;
use super::place::{self, Place};

/// Notifications for the watchers of all records of a store.
///
/// The server watches the whole tree once and reports the path of each change; the watchers of
/// each path are kept here.
#[derive(Debug)]
pub(super) struct News {
    root: Arc<str>,
    watchers: Watchers,
    /// The watched keys, by the paths of their records.
    paths: Mutex<HashMap<String, RecordKey>>,
    /// Ends with the store, or when the server is gone.
    listening: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl News {
    /// Notifications for the records under `root`. No request is sent yet.
    pub(super) fn of(root: Arc<str>) -> Arc<Self> {
        Arc::new_cyclic(|news: &Weak<Self>| {
            let feed: Weak<Self> = news.clone();
            Self {
                root,
                watchers: Watchers::fed_by(feed),
                paths: Mutex::default(),
                listening: tokio::sync::Mutex::default(),
            }
        })
    }

    /// Watches a key. The first watcher subscribes to the server, on `link`.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time.
    pub(super) async fn watch(
        self: &Arc<Self>,
        key: &RecordKey,
        link: &Arc<Link>,
    ) -> Result<Watch, StoreError> {
        let watch = self.watchers.watch(key);
        // Registered before the insertion: a watcher that leaves concurrently either finds the key watched, or
        // has removed its path before.
        let path = Place::of(&self.root, key).node;
        self.paths().insert(path, key.clone());
        let mut listening = self.listening.lock().await;
        if listening.as_ref().is_none_or(JoinHandle::is_finished) {
            let heard = self.ask(link).await?;
            let listen = listen(heard, Arc::clone(self), Arc::downgrade(link));
            *listening = Some(tokio::spawn(listen));
        }
        Ok(watch)
    }

    /// Subscribes to the whole tree.
    async fn ask(&self, link: &Link) -> Result<PersistentWatcher, StoreError> {
        let records = place::records(&self.root);
        let everything = |client: Client| async move {
            let mode = AddWatchMode::PersistentRecursive;
            client.watch(&records, mode).await
        };
        link.run("a watch", everything).await
    }

    fn wake(&self, path: &str) {
        let key = self.paths().get(path).cloned();
        if let Some(key) = key {
            self.watchers.wake(&key);
        }
    }

    fn wake_all(&self) {
        let keys: Vec<_> = self.paths().values().cloned().collect();
        for key in keys {
            self.watchers.wake(&key);
        }
    }

    fn paths(&self) -> MutexGuard<'_, HashMap<String, RecordKey>> {
        // Nothing panics while the lock is held.
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed for News {
    fn left(&self, key: &RecordKey) {
        let mut paths = self.paths();
        if !self.watchers.is_watched(key) {
            paths.remove(&Place::of(&self.root, key).node);
        }
    }

    fn missed(&self) {
        // A session has a heartbeat: a broken session ends by itself, and the next watcher
        // begins another.
    }
}

/// Forwards changes as long as the store and the server exist.
async fn listen(mut heard: PersistentWatcher, news: Arc<News>, link: Weak<Link>) {
    loop {
        let event = heard.changed().await;
        if event.event_type != EventType::Session {
            news.wake(&event.path);
            continue;
        }
        let over = event.session_state.is_terminated();
        if !over && event.session_state != SessionState::SyncConnected {
            continue;
        }
        // Subscribes again even in the same session: the client renews its watches by itself, but leaves out
        // watches of this kind (seen in zookeeper-client 0.11.2).
        let Some(link) = link.upgrade() else {
            return;
        };
        let again = news.ask(&link).await;
        // Changes in between were not reported, so wake every watcher.
        news.wake_all();
        match again {
            Ok(again) => heard = again,
            // The next watcher subscribes again.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use idem_harness::ZooKeeperServer;
    use idem_runtime::key::{KeyDigest, Operation};

    use super::*;

    #[tokio::test]
    async fn a_key_is_remembered_as_long_as_somebody_watches_it() {
        let server = ZooKeeperServer::start();
        let link = Arc::new(Link::new(server.addr().to_string()));
        let news = News::of("/idem".into());
        let digest = KeyDigest::from_bytes([0x2a; 32]);
        let key = RecordKey::new("shop".into(), Operation::new("pay"), digest);
        let one = news.watch(&key, &link).await.unwrap();
        let two = news.watch(&key, &link).await.unwrap();
        drop(one);
        assert_eq!(news.paths().len(), 1);
        drop(two);
        assert_eq!(news.paths().len(), 0);

        server.kill();
        let down = Arc::new(Link::new(server.addr().to_string()));
        let news = News::of("/idem".into());
        news.watch(&key, &down).await.unwrap_err();
        assert_eq!(news.paths().len(), 0);
    }
}
