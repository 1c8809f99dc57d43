//! `LISTEN` and `NOTIFY` of PostgreSQL.
//!
//! Optional, because a transaction that notifies takes a lock of the whole server
//! when it is committed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::failure::store_error;
use super::login::Login;
use super::postgres::Postgres;
use super::primary_key::{PrimaryKey, from_hex, primary_key};
use crate::identity::operation::RecordKey;
use crate::store::{Feed, StoreError, StoreErrorKind, StoreFuture, Watch, Watchers};

const WHAT: &str = "listening";

/// The change notifications of a store.
pub(super) struct ListenNotify {
    login: Login<Postgres>,
    channel: String,
    patience: Duration,
    watchers: Watchers,
    /// The watched keys by primary key, because a notification names a primary key.
    keys: Arc<WatchedKeys>,
    /// The listening task, on the thread of the engine that watched first.
    listens: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct WatchedKeys(Mutex<HashMap<PrimaryKey, RecordKey>>);

impl WatchedKeys {
    fn lock(&self) -> MutexGuard<'_, HashMap<PrimaryKey, RecordKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed for WatchedKeys {
    fn left(&self, key: &RecordKey) {
        self.lock().remove(&primary_key(key));
    }

    // The driver checks its connection; a missed notification is found by polling.
    fn missed(&self) {}
}

impl fmt::Debug for ListenNotify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenNotify")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

/// The channel of a table: its name, without characters that a channel's may not have.
fn channel(table: &str) -> String {
    format!("idem_{}", table.replace('.', "_"))
        .chars()
        .take(63)
        .collect()
}

/// The suffix of a statement that notifies of the changed record.
pub(super) fn notify_suffix(table: &str) -> String {
    let channel = channel(table);
    format!(" RETURNING pg_notify('{channel}', encode(record_key, 'hex'))")
}

impl ListenNotify {
    pub(super) fn new(login: Login<Postgres>, table: &str, patience: Duration) -> Self {
        let keys = Arc::new(WatchedKeys::default());
        let feed: Weak<dyn Feed> = Arc::downgrade(&keys) as Weak<dyn Feed>;
        Self {
            login,
            channel: channel(table),
            patience,
            watchers: Watchers::fed_by(feed),
            keys,
            listens: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        StoreFuture::pending(async move {
            self.listen().await?;
            // In this order, because another watch may leave the key in between.
            let watch = self.watchers.watch(key);
            self.keys.lock().insert(primary_key(key), key.clone());
            Ok(Some(watch))
        })
    }

    async fn listen(&self) -> Result<(), StoreError> {
        let mut listens = self.listens.lock().await;
        if listens.as_ref().is_some_and(|task| !task.is_finished()) {
            return Ok(());
        }
        let channel = &self.channel;
        let connecting = self.login.log_in(|options| async move {
            let pool = PgPoolOptions::new().max_connections(1);
            let pool = pool.connect_lazy_with(options);
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen(channel).await?;
            Ok(listener)
        });
        let Ok(listener) = timeout(self.patience, connecting).await else {
            let message = format!("{WHAT}: no reply of PostgreSQL within {:?}", self.patience);
            return Err(StoreError::new(StoreErrorKind::Unavailable, message));
        };
        let listener = listener.map_err(|error| store_error::<Postgres>(WHAT, error))?;
        let (watchers, keys) = (self.watchers.clone(), Arc::downgrade(&self.keys));
        *listens = Some(tokio::spawn(receive(listener, watchers, keys)));
        Ok(())
    }
}

impl Drop for ListenNotify {
    fn drop(&mut self) {
        if let Some(task) = self.listens.get_mut() {
            task.abort();
        }
    }
}

/// Lapses all watches when the listening task ends, for example with the engine that started it.
struct LapseOnDrop(Watchers);

impl Drop for LapseOnDrop {
    fn drop(&mut self) {
        self.0.lapse_all();
    }
}

async fn receive(mut listener: PgListener, watchers: Watchers, keys: Weak<WatchedKeys>) {
    let watchers = LapseOnDrop(watchers);
    loop {
        match listener.try_recv().await {
            Ok(Some(notice)) => {
                let Some(keys) = keys.upgrade() else { return };
                let key = from_hex(notice.payload())
                    .and_then(|primary_key| keys.lock().get(&primary_key).cloned());
                if let Some(key) = key {
                    watchers.0.wake(&key);
                }
            }
            // The connection was lost, and notifications with it. The driver makes another at the next receive.
            Ok(None) => watchers.0.lapse_all(),
            // The driver cannot reconnect: the next watch tries again.
            Err(_) => return,
        }
    }
}
