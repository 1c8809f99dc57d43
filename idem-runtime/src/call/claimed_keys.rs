//! The keys that an engine has claimed in transactions.

use std::collections::HashMap;

use crate::env::lock::Lock;
use crate::identity::key::KeyDigest;

/// The transaction that locks the file, as far as the engine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// It runs the body of this key.
    Running,
    /// It ran the body of this key. Its commit or rollback is not visible to the engine.
    Ended,
    /// Another key, process or part of the application has it.
    Other,
}

/// Keys claimed in transactions, where the database does not show them.
#[derive(Default)]
pub(crate) struct ClaimedKeys(Lock<Keys>);

#[derive(Default)]
struct Keys {
    next_id: u64,
    /// With the id of their call.
    running: HashMap<KeyDigest, u64>,
    /// Keys of the last transaction: another claim is granted only after it.
    ended: Vec<KeyDigest>,
}

impl ClaimedKeys {
    pub(crate) fn begin(&self, key: KeyDigest) -> u64 {
        let mut keys = self.0.lock();
        keys.next_id += 1;
        let id = keys.next_id;
        keys.running.insert(key, id);
        keys.ended.clear();
        id
    }

    pub(crate) fn end(&self, key: KeyDigest, id: u64, is_claimed: bool) {
        let mut keys = self.0.lock();
        // A body that has ended its transaction itself may outlast the next body of its key.
        if keys.running.get(&key) == Some(&id) {
            keys.running.remove(&key);
            if is_claimed {
                keys.ended.push(key);
            }
        }
    }

    pub(crate) fn holder(&self, key: &KeyDigest) -> Holder {
        let keys = self.0.lock();
        if keys.running.contains_key(key) {
            Holder::Running
        } else if keys.ended.contains(key) {
            Holder::Ended
        } else {
            Holder::Other
        }
    }
}
