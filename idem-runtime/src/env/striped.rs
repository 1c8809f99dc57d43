//! Padding against false sharing.
//!
//! Two threads that write to one cache line wait for each other, even if they write different parts of it. A counter
//! of every call is therefore kept once for each of a few *lanes*, and a thread stays in its lane.

use std::ops::Deref;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lock::Lock;

/// A value on cache lines of its own.
///
/// Two of them, because processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Few enough to iterate over, enough that two threads seldom share one.
const LANES: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane(usize);

impl Lane {
    /// The lane of this thread.
    pub(crate) fn mine() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % LANES;
        }
        // A thread that is about to end may use any lane.
        Self(MINE.try_with(|mine| *mine).unwrap_or(0))
    }
}

/// One value for each lane.
#[derive(Debug, Default)]
pub(crate) struct Lanes<T>([Padded<T>; LANES]);

impl<T> Lanes<T> {
    pub(crate) fn of(mut make: impl FnMut() -> T) -> Self {
        Self(std::array::from_fn(|_| Padded(make())))
    }

    pub(crate) fn get(&self, lane: Lane) -> &T {
        &self.0[lane.0]
    }

    pub(crate) fn mine(&self) -> &T {
        self.get(Lane::mine())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(Deref::deref)
    }
}

impl<T> Lanes<Lock<T>> {
    /// Locks all lanes at one moment.
    ///
    /// A caller that holds one of the locks must neither call this nor lock another one.
    pub(crate) fn locked(&self) -> Vec<MutexGuard<'_, T>> {
        self.all().map(Lock::lock).collect()
    }
}

/// A counter that many threads change and that is seldom read.
#[derive(Debug, Default)]
pub(crate) struct Tally(Lanes<AtomicUsize>);

impl Tally {
    /// Counts up, and returns the lane in which to count down.
    pub(crate) fn up(&self) -> Lane {
        let lane = Lane::mine();
        self.0.get(lane).fetch_add(1, Ordering::SeqCst);
        lane
    }

    pub(crate) fn down(&self, lane: Lane) {
        self.0.get(lane).fetch_sub(1, Ordering::SeqCst);
    }

    /// The current count. A decrement during the sum may or may not be in it.
    pub(crate) fn sum(&self) -> usize {
        self.0.all().map(|part| part.load(Ordering::SeqCst)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// A value that moves between two reads would be in neither lane.
    #[test]
    fn all_lanes_are_looked_at_in_one_moment() {
        let lanes = Lanes::<Lock<usize>>::default();
        let (first, last) = (Lane(0), Lane(LANES - 1));
        std::thread::scope(|scope| {
            let held = lanes.get(last).lock();
            let sum = scope.spawn(|| lanes.locked().iter().map(|part| **part).sum::<usize>());
            let patience = Instant::now() + Duration::from_secs(20);
            let is_held = loop {
                match lanes.get(first).try_lock() {
                    None => break true,
                    Some(_) if Instant::now() > patience => break false,
                    Some(_) => std::thread::yield_now(),
                }
            };
            drop(held);
            assert!(is_held, "the first lane is let go before the last is seen");
            assert_eq!(sum.join().unwrap(), 0);
        });
    }

    #[test]
    fn what_one_thread_counts_up_another_may_count_down() {
        let tally = Tally::default();
        let lanes: Vec<_> = (0..3).map(|_| tally.up()).collect();
        assert_eq!(tally.sum(), 3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tally.up();
                for lane in lanes {
                    tally.down(lane);
                }
            });
        });
        assert_eq!(tally.sum(), 1);
    }
}
