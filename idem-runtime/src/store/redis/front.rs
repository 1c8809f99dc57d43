//! Redis as the front store of a layered store.

use std::time::Duration;

use bytes::Bytes;

use super::arguments::{decimal, millis};
use super::core::RedisCore;
use super::probe::Use;
use super::reply::unexpected;
use super::script::Script;
use super::store::RedisStore;
use super::topology::Topology;
use crate::record::{Owner, Record};
use crate::store::read_cache::{Copied, ReadCache};
use crate::store::{RecordKey, Store, StoreError, StoreFuture, Watch};

impl RedisCore {
    async fn copy_of(&self, topology: &Topology, key: &RecordKey) -> Result<Copied, StoreError> {
        let (name, script) = (key.name(), &self.scripts.look);
        let answer = topology
            .run("looking for a copy", script, &name, &[])
            .await?;
        if answer.unreadable().is_some() {
            return Ok(None);
        }
        let (left, bytes) = match answer.code {
            b'N' => return Ok(None),
            b'D' => (answer.millis()?, answer.record()?),
            b'G' => {
                let left = answer.millis()?;
                self.check_size(answer.size()?)?;
                match self.read_plain(topology, &name).await? {
                    Some(bytes) => (left, bytes),
                    None => return Ok(None),
                }
            }
            _ => return Err(unexpected()),
        };
        Ok(Record::decode(bytes).ok().map(|record| (record, left)))
    }

    /// Runs a script that may change a copy.
    async fn change_copy(
        &self,
        what: &str,
        script: &Script,
        key: &RecordKey,
        arguments: &[&[u8]],
    ) -> Result<(), StoreError> {
        let name = key.name();
        let answer = self.link.run(what, script, &name, arguments).await?;
        match answer.code {
            b'C' | b'S' | b'N' => Ok(()),
            _ if answer.unreadable().is_some() => Ok(()),
            _ => Err(unexpected()),
        }
    }

    async fn keep(&self, key: &RecordKey, copy: &Bytes, left: Duration) -> Result<(), StoreError> {
        if left.as_millis() == 0 {
            return Ok(());
        }
        let left = decimal(millis(left));
        let arguments: [&[u8]; 2] = [copy, left.as_bytes()];
        let script = &self.scripts.keep;
        self.change_copy("keeping a copy", script, key, &arguments)
            .await
    }

    async fn forget(&self, key: &RecordKey, owner: Option<&Owner>) -> Result<(), StoreError> {
        let owner: &[u8] = owner.map_or(&[], |owner| owner.as_bytes());
        let script = &self.scripts.forget;
        self.change_copy("forgetting a copy", script, key, &[owner])
            .await
    }
}

impl ReadCache for RedisStore {
    fn look<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        StoreFuture::pending(self.0.copy_of(&self.0.link, key))
    }

    fn keep<'a>(
        &'a self,
        key: &'a RecordKey,
        copy: &'a Bytes,
        left: Duration,
    ) -> StoreFuture<'a, ()> {
        StoreFuture::pending(self.0.keep(key, copy, left))
    }

    fn forget<'a>(&'a self, key: &'a RecordKey, owner: Option<&'a Owner>) -> StoreFuture<'a, ()> {
        StoreFuture::pending(self.0.forget(key, owner))
    }

    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        StoreFuture::pending(self.0.copy_of(&self.0.background, key))
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        Store::watch(self, key)
    }

    fn max_record_bytes(&self) -> Option<usize> {
        Store::max_record_bytes(self)
    }

    /// Those that are true of a cache. A restart, an eviction or a failover loses copies, which costs time only.
    fn warnings(&self) -> Vec<String> {
        self.warnings_as(Use::Cache)
    }
}
