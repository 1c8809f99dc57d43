//! Room between what threads write.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::key::KeyDigest;

/// On cache lines of its own: a thread that writes here does not slow down one that is busy with a
/// neighbour. Two lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Few enough to add up, enough that two threads seldom meet.
const PARTS: usize = 16;

/// A number that many threads count up and down and that is seldom read. Who counts something up counts
/// it down under the same key.
#[derive(Debug, Default)]
pub(crate) struct Tally([Padded<AtomicUsize>; PARTS]);

impl Tally {
    fn part(&self, key: &KeyDigest) -> &AtomicUsize {
        // A digest is as good as random.
        &self.0[usize::from(key.as_bytes()[0]) % PARTS]
    }

    pub(crate) fn up(&self, key: &KeyDigest) {
        self.part(key).fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn down(&self, key: &KeyDigest) {
        self.part(key).fetch_sub(1, Ordering::SeqCst);
    }

    /// How many there are. What is counted down during the sum may be in it.
    pub(crate) fn sum(&self) -> usize {
        self.0.iter().map(|part| part.load(Ordering::SeqCst)).sum()
    }
}
