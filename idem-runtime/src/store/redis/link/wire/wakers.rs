//! Tasks to wake without the lock.

use std::task::Waker;

/// Tasks that are woken when this is dropped; a waker that panics keeps no other one from it.
#[derive(Default)]
pub(super) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Wakes all tasks, and keeps the memory.
    pub(super) fn wake(&mut self) {
        self.0.reverse();
        while let Some(waker) = self.0.pop() {
            waker.wake();
        }
    }
}

impl Extend<Waker> for Wakers {
    fn extend<I: IntoIterator<Item = Waker>>(&mut self, wakers: I) {
        self.0.extend(wakers);
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        self.wake();
    }
}
