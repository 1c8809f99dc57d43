//! Hears from the server what changes, and tells who watches.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use idem_runtime::store::{Feed, RecordKey, StoreError, Watch, Watchers};
use tokio::task::JoinHandle;
use zookeeper_client::{AddWatchMode, Client, EventType, PersistentWatcher, SessionState};

use super::link::Link;
use super::place::{self, Place};

/// What is told to those who wait, about all records of a store.
///
/// The server is asked to watch the whole tree, once; it says which path has changed, and here is
/// kept who wants to know.
pub struct News {
    root: Arc<str>,
    watchers: Watchers,
    /// The keys that are watched, by the paths of their records.
    paths: Mutex<HashMap<String, RecordKey>>,
    /// Ends with the store, or when the server is gone.
    listening: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl News {
    /// News of the records under `root`. Nothing is asked of the server yet.
    #[must_use]
    pub fn of(root: Arc<str>) -> Arc<Self> {
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

    /// Watches a key. The first who does so has the server asked, on `link`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the server does not tell.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time.
    pub async fn watch(
        self: &Arc<Self>,
        key: &RecordKey,
        link: &Arc<Link>,
    ) -> Result<Watch, StoreError> {
        let watch = self.watchers.watch(key);
        // In this order: whoever leaves the key now finds it watched, or was here before.
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

    /// Asks the server to watch the whole tree.
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
        // Nothing panics while it is held.
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
        // A session has a heartbeat: one that is broken ends by itself, and the next who watches
        // begins another.
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("News")
            .field("watched", &self.paths().len())
            .finish_non_exhaustive()
    }
}

/// Tells what has changed, as long as there is a store and a server.
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
        // Asked again even in the same session: the client asks again by itself, but leaves out
        // watches of this kind (seen in zookeeper-client 0.11.2).
        let Some(link) = link.upgrade() else {
            return;
        };
        let again = news.ask(&link).await;
        // What happened in between was said to nobody.
        news.wake_all();
        match again {
            Ok(again) => heard = again,
            // Whoever watches next begins anew.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use idem_harness::ZooKeeperServer;
    use idem_runtime::{KeyDigest, Operation};

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
