//! Fixture for the conformance suite: moves time and reads past the store.

use std::sync::Arc;
use std::time::Duration;

use idem_conformance::{BoxFuture, Fixture, Plant};
use idem_runtime::store::{RecordKey, Store};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error};

use super::place::{self, Place};
use super::store::ZooKeeperStore;

const NEW: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// A root of its own on a server.
#[derive(Debug)]
pub struct InZooKeeper {
    store: ZooKeeperStore,
    client: Client,
    root: String,
}

impl InZooKeeper {
    /// A fixture whose records are under `root`, which must be empty. `client` bypasses the store.
    pub fn new(store: &ZooKeeperStore, client: &Client, root: String) -> Self {
        Self {
            store: store.under(&root),
            client: client.clone(),
            root,
        }
    }

    async fn now(&self) -> Result<i64, Error> {
        let clock = place::clock(&self.root);
        self.client.mkdir(&clock, &NEW).await?;
        Ok(self.client.set_data(&clock, &[], None).await?.mtime)
    }

    /// Ages every record under the root by this duration.
    async fn age(&self, by: Duration) -> Result<(), Error> {
        let now = self.now().await?;
        let records = place::records(&self.root);
        for shard in children(&self.client, &records).await? {
            let shard = format!("{records}/{shard}");
            for name in children(&self.client, &shard).await? {
                let node = format!("{shard}/{name}");
                let (data, stat) = self.client.get_data(&node).await?;
                let Ok(Some((bytes, left))) = place::bytes(data, stat.mtime, now) else {
                    continue;
                };
                let data = place::data(&bytes, left.saturating_sub(by));
                let version = Some(stat.version);
                self.client.set_data(&node, &data, version).await?;
            }
        }
        Ok(())
    }

    async fn put(&self, key: &RecordKey, data: &[u8]) -> Result<(), Error> {
        let place = Place::of(&self.root, key);
        self.client.mkdir(&place.node, &NEW).await?;
        self.client.set_data(&place.node, data, None).await?;
        Ok(())
    }

    async fn found(&self, key: &RecordKey) -> Result<Option<Vec<u8>>, Error> {
        let now = self.now().await?;
        let node = Place::of(&self.root, key).node;
        match self.client.get_data(&node).await {
            Err(Error::NoNode) => Ok(None),
            found => {
                let (data, stat) = found?;
                let bytes = place::bytes(data, stat.mtime, now).ok().flatten();
                Ok(bytes.map(|(bytes, _)| bytes.into()))
            }
        }
    }
}

async fn children(client: &Client, node: &str) -> Result<Vec<String>, Error> {
    match client.list_children(node).await {
        Err(Error::NoNode) => Ok(Vec::new()),
        found => found,
    }
}

const UP: &str = "the server is up, and nobody else is in this root";

impl Fixture for InZooKeeper {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn prefix(&self) -> Arc<str> {
        "a prefix/".into()
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.age(by).await.expect(UP) })
    }

    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let data = match plant {
                Plant::Bytes { bytes, life } => place::data(&bytes, life),
                // Every node of this store begins with its life; data that does not is foreign.
                Plant::OtherType => b"somebody else's data".to_vec(),
                _ => return false,
            };
            self.put(key, &data).await.expect(UP);
            true
        })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move { self.found(key).await.expect(UP) })
    }

    fn drift(&self) -> Duration {
        Duration::from_secs(20)
    }
}
