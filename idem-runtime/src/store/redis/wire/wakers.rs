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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// A task that panics when it is woken, or not.
    struct Counting(AtomicUsize, bool);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            assert!(!self.1, "a waker");
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_no_other_task_asleep() {
        let tasks = [false, true, false].map(|panics| Arc::new(Counting(0.into(), panics)));
        let mut wakers = Wakers::default();
        wakers.extend(tasks.iter().cloned().map(Waker::from));
        let all = std::panic::AssertUnwindSafe(move || wakers.wake());
        assert!(std::panic::catch_unwind(all).is_err());
        assert!(tasks.iter().all(|task| task.0.load(Ordering::SeqCst) == 1));
    }
}
