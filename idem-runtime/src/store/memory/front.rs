//! A memory store in front of another: a cache of one process.

use std::time::Duration;

use bytes::Bytes;

use super::{Inner, MemoryStore};
use crate::record::{Header, Owner, Record, State};
use crate::store::front::{Copied, Front, supersedes};
use crate::store::{RecordKey, StoreFuture, Watch};

impl Inner {
    pub(super) fn copy_of(&self, key: &RecordKey) -> Copied {
        let shard = self.shard(key);
        let slot = shard.get(key)?;
        // Nearly every first call returns above, without reading the clock.
        let left = slot.expires.saturating_sub(self.clock.now());
        if left.is_zero() {
            return None;
        }
        Some((Record::decode(slot.bytes.clone()).ok()?, left))
    }

    fn forget_copy(&self, key: &RecordKey, owner: Option<&Owner>) {
        let mut shard = self.shard(key);
        if let Some(slot) = shard.alive(key, self.clock.now())
            && let Ok(there) = Header::decode(&slot.bytes)
            && owner.is_none_or(|owner| there.owner == *owner)
        {
            let gone = shard.remove(key);
            self.count(&mut shard, gone);
        }
    }
}

impl Front for MemoryStore {
    fn look<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        StoreFuture::ready(Ok(self.0.copy_of(key)))
    }

    fn keep<'a>(
        &'a self,
        key: &'a RecordKey,
        copy: &'a Bytes,
        left: Duration,
    ) -> StoreFuture<'a, ()> {
        let Ok(header) = Header::decode(copy) else {
            return StoreFuture::ready(Ok(()));
        };
        // A full cache makes no more copies until others have expired.
        let kept = self.0.operate(
            key,
            self.0.clock.now(),
            |current| match current {
                Some(there) if !supersedes(&header, &there.record.header) => ((), None),
                _ => ((), Some((copy.clone(), Some(left)))),
            },
            |_| (),
            true,
        );
        if let State::Done { .. } = header.state {
            self.0.watchers.wake(key);
        }
        StoreFuture::ready(kept)
    }

    fn forget<'a>(&'a self, key: &'a RecordKey, owner: Option<&'a Owner>) -> StoreFuture<'a, ()> {
        self.0.forget_copy(key, owner);
        self.0.watchers.wake(key);
        StoreFuture::ready(Ok(()))
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        StoreFuture::ready(Ok(Some(self.0.watchers.watch(key))))
    }

    fn is_shared(&self) -> bool {
        false
    }
}
