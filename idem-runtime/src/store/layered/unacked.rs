//! Unacknowledged completions, which may be stored, at an unknown time.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::env::lock::Lock;
use crate::env::moment::Moment;
use crate::record::Owner;

/// Longer than the engine retries a completion.
const LONGEST: Duration = Duration::from_secs(25 * 60 * 60);
const MANY: usize = 4096;

/// The owners of unacknowledged completions.
///
/// The life of a repeated completion counts from its first write, and so does that of its copy: the copy is therefore
/// left to the next call that reads the record.
#[derive(Debug, Default)]
pub(super) struct UnackedCompletions(Lock<UnackedOwners>);

#[derive(Debug, Default)]
struct UnackedOwners {
    owners: HashSet<Owner>,
    /// Set when there were too many: until then every completion counts as unacknowledged.
    all_until: Option<Instant>,
}

/// A completion in progress. If it is dropped without a reply, it is unacknowledged.
pub(super) struct SentCompletion<'a> {
    unacked: &'a UnackedCompletions,
    owner: Owner,
    acknowledged: bool,
    pub(super) sent: Moment,
}

impl UnackedCompletions {
    pub(super) fn send(&self, owner: Owner) -> SentCompletion<'_> {
        SentCompletion {
            unacked: self,
            owner,
            acknowledged: false,
            sent: Moment::now(),
        }
    }
}

impl SentCompletion<'_> {
    /// Records its reply. Returns whether this was certainly the first send.
    pub(super) fn acknowledged(&mut self) -> bool {
        self.acknowledged = true;
        let mut state = self.unacked.0.lock();
        let now = Instant::now();
        state.all_until = state.all_until.filter(|until| *until > now);
        !state.owners.remove(&self.owner) && state.all_until.is_none()
    }
}

impl Drop for SentCompletion<'_> {
    fn drop(&mut self) {
        if self.acknowledged {
            return;
        }
        let mut state = self.unacked.0.lock();
        if state.owners.len() >= MANY {
            state.owners = HashSet::new();
            state.all_until = Some(Instant::now() + LONGEST);
        }
        state.owners.insert(self.owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_without_a_reply_is_unacknowledged_once() {
        let unacked = UnackedCompletions::default();
        let owner = Owner::from_bytes([1; 16]);
        assert!(unacked.send(owner).acknowledged());
        drop(unacked.send(owner));
        assert!(!unacked.send(owner).acknowledged());
        assert!(unacked.send(owner).acknowledged());
    }

    #[test]
    fn beyond_the_limit_every_completion_is_unacknowledged() {
        let unacked = UnackedCompletions::default();
        for number in 0..=MANY as u64 {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            drop(unacked.send(Owner::from_bytes(bytes)));
        }
        assert!(unacked.0.lock().owners.len() <= MANY);
        assert!(!unacked.send(Owner::from_bytes([9; 16])).acknowledged());
    }
}
