//! Unacknowledged completions: stored or not, and at an unknown time.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::record::Owner;

/// Longer than the engine retries a completion.
const LONGEST: Duration = Duration::from_hours(25);
const MANY: usize = 4096;

/// The owners of unacknowledged completions.
///
/// The life of a repeated completion counts from its first write, and so does that of its copy: the copy is therefore
/// left to the next call that reads the record.
#[derive(Debug, Default)]
pub(super) struct Doubts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    owners: HashSet<Owner>,
    /// Set when there were too many: until then every completion is in doubt.
    all_until: Option<Instant>,
}

/// A completion in progress. If it is dropped without a reply, it is in doubt.
pub(super) struct Sending<'a> {
    doubts: &'a Doubts,
    owner: Owner,
    answered: bool,
    pub(super) sent: Instant,
}

impl Doubts {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send(&self, owner: Owner) -> Sending<'_> {
        Sending {
            doubts: self,
            owner,
            answered: false,
            sent: Instant::now(),
        }
    }
}

impl Sending<'_> {
    /// Records its reply. Returns whether this was certainly the first send.
    pub(super) fn answered(&mut self) -> bool {
        self.answered = true;
        let mut state = self.doubts.lock();
        let now = Instant::now();
        state.all_until = state.all_until.filter(|until| *until > now);
        !state.owners.remove(&self.owner) && state.all_until.is_none()
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut state = self.doubts.lock();
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
    fn a_completion_without_a_reply_is_in_doubt_once() {
        let doubts = Doubts::default();
        let owner = Owner::from_bytes([1; 16]);
        assert!(doubts.send(owner).answered());
        drop(doubts.send(owner));
        assert!(!doubts.send(owner).answered());
        assert!(doubts.send(owner).answered());
    }

    #[test]
    fn too_many_put_everybody_in_doubt() {
        let doubts = Doubts::default();
        for number in 0..=MANY as u64 {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            drop(doubts.send(Owner::from_bytes(bytes)));
        }
        assert!(doubts.lock().owners.len() <= MANY);
        assert!(!doubts.send(Owner::from_bytes([9; 16])).answered());
    }
}
