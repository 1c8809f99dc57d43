//! The clock of an engine.
//!
//! Tests can replace it by `ManualClock`, with the feature `testing`. See [testing](crate::guide::testing).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, SystemTime};

/// A future that ends when the clock reaches a moment.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The engine's clock. It measures durations only; no time of a client ever enters a record.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Time since a start that never moves, without steps backwards.
    fn now(&self) -> Duration;

    /// The calendar time, for messages.
    fn calendar(&self) -> SystemTime;

    /// Microseconds since 1970.
    ///
    /// A store in this process numbers its fences from them.
    fn calendar_us(&self) -> u64 {
        let since = self.calendar().duration_since(SystemTime::UNIX_EPOCH);
        u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
    }

    /// Ends when [`now`](Self::now) has reached `moment`, or soon after.
    fn sleep_until(&self, moment: Duration) -> Sleep;
}

/// The machine's own clock, with timers of the polling tokio runtime.
///
/// On Linux it is `CLOCK_BOOTTIME`, which counts the time for which the machine is suspended, because leases elapse in
/// that time; timers that were due then end within a second after it. Elsewhere it is [`Instant`](std::time::Instant),
/// which counts that time on Windows and not on macOS. No clock counts a pause of a virtual machine whose host stops the
/// guest's clocks.
///
/// `tokio::time::pause` does not affect it: its timers run in real time.
#[derive(Debug)]
pub struct SystemClock;

/// Longest timer of tokio, whose clock stops while the machine is suspended.
const LONGEST_TIMER: Duration = Duration::from_secs(1);

impl Clock for SystemClock {
    #[cfg(target_os = "linux")]
    fn now(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};

        let since_boot = clock_gettime(ClockId::Boottime);
        Duration::try_from(since_boot).expect("it is not negative")
    }

    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> Duration {
        use std::sync::OnceLock;
        use std::time::Instant;

        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    fn calendar(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, moment: Duration) -> Sleep {
        Box::pin(async move {
            let mut left = moment.saturating_sub(Self.now());
            while !left.is_zero() {
                let timer = left.min(LONGEST_TIMER);
                tokio::time::sleep(timer).await;
                // Less by more than the timer after a suspension.
                left = left
                    .saturating_sub(timer)
                    .min(moment.saturating_sub(Self.now()));
            }
        })
    }
}

/// The deadline was reached first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// Awaits `work` until `moment`. No timer is made for work that is ready at once.
///
/// The work is borrowed: moved in, it would take its space twice in the future of the caller.
pub(crate) fn deadline<F: Future>(
    clock: &dyn Clock,
    moment: Duration,
    mut work: Pin<&mut F>,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    let mut timer = None;
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(output) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let timer: &mut Sleep = timer.get_or_insert_with(|| clock.sleep_until(moment));
        timer.as_mut().poll(cx).map(|()| Err(Elapsed))
    })
}

#[cfg(any(test, feature = "testing"))]
mod manual {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::{Clock, Duration, Future, Pin, Poll, Sleep, SystemTime};
    use crate::env::lock::Lock;

    /// A clock that stands still until a test moves it.
    ///
    /// Clones share one time. Works from any thread and with any runtime. Give it to the
    /// [engine](crate::EngineBuilder::clock) and to the
    /// [memory store](crate::store::memory::MemoryStoreBuilder::clock).
    ///
    /// ```
    /// use idem_runtime::clock::{Clock, ManualClock};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let before = clock.now();
    /// clock.advance(Duration::from_secs(30));
    /// assert_eq!(clock.now() - before, Duration::from_secs(30));
    /// ```
    #[derive(Clone, Default)]
    pub struct ManualClock(Arc<Lock<ManualTime>>);

    #[derive(Default)]
    struct ManualTime {
        now: Duration,
        sleepers: BTreeMap<(Duration, u64), Waker>,
        next_id: u64,
        watchers: Vec<Waker>,
    }

    impl ManualClock {
        /// A clock at an arbitrary start.
        #[must_use]
        pub fn new() -> Self {
            Self::default()
        }

        /// Moves time forward and wakes all sleepers that are due.
        pub fn advance(&self, by: Duration) {
            let mut inner = self.0.lock();
            inner.now += by;
            let later = (inner.now, u64::MAX);
            let later = inner.sleepers.split_off(&later);
            let woken = std::mem::replace(&mut inner.sleepers, later);
            drop(inner);
            woken.into_values().for_each(Waker::wake);
        }

        /// How long until the first sleeper wakes; `None` without a sleeper.
        #[must_use]
        pub fn next_wake(&self) -> Option<Duration> {
            let inner = self.0.lock();
            let (&(moment, _), _) = inner.sleepers.first_key_value()?;
            Some(moment.saturating_sub(inner.now))
        }

        /// Waits until a sleeper is due at most `within` from now.
        ///
        /// At this point a test may move time on and be sure that it wakes the sleeper.
        ///
        /// # Cancel safety
        ///
        /// May be dropped.
        pub async fn sleeper_within(&self, within: Duration) {
            std::future::poll_fn(|cx| {
                if self.next_wake().is_some_and(|left| left <= within) {
                    return Poll::Ready(());
                }
                self.0.lock().watchers.push(cx.waker().clone());
                // The sleeper may have arrived between the check and the push.
                if self.next_wake().is_some_and(|left| left <= within) {
                    return Poll::Ready(());
                }
                Poll::Pending
            })
            .await;
        }
    }

    debug_fields!(ManualClock { now: |it| it.now() });

    impl Clock for ManualClock {
        fn now(&self) -> Duration {
            self.0.lock().now
        }

        fn calendar(&self) -> SystemTime {
            // 2026-01-01, so that messages of tests are stable.
            SystemTime::UNIX_EPOCH + Duration::from_secs(490_896 * 60 * 60) + self.now()
        }

        fn sleep_until(&self, moment: Duration) -> Sleep {
            Box::pin(ManualSleep {
                clock: self.clone(),
                moment,
                id: None,
            })
        }
    }

    struct ManualSleep {
        clock: ManualClock,
        moment: Duration,
        id: Option<u64>,
    }

    impl Future for ManualSleep {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let clock = self.clock.clone();
            let mut inner = clock.0.lock();
            if inner.now >= self.moment {
                return Poll::Ready(());
            }
            let id = *self.id.get_or_insert_with(|| {
                inner.next_id += 1;
                inner.next_id
            });
            inner.sleepers.insert((self.moment, id), cx.waker().clone());
            let watchers = std::mem::take(&mut inner.watchers);
            drop(inner);
            watchers.into_iter().for_each(Waker::wake);
            Poll::Pending
        }
    }

    impl Drop for ManualSleep {
        fn drop(&mut self) {
            if let Some(id) = self.id {
                self.clock.0.lock().sleepers.remove(&(self.moment, id));
            }
        }
    }
}

#[cfg(any(test, feature = "testing"))]
pub use manual::ManualClock;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// `/proc/uptime` counts suspensions, and `Instant` does not.
    ///
    /// It counts the offset of a time namespace, too: `unshare --map-root-user --time --boottime 100000 --fork` before
    /// the test program shows the difference on a machine that was never suspended.
    #[test]
    fn the_clock_of_the_system_counts_suspensions() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
            Duration::from_secs_f64(seconds)
        };
        // It is rounded down to hundredths.
        let rounding = Duration::from_millis(10);
        let (before, now, after) = (uptime(), SystemClock.now(), uptime());
        assert!(
            before <= now && now <= after + rounding,
            "{before:?} {now:?} {after:?}"
        );
    }

    #[tokio::test]
    async fn a_timer_of_the_system_ends_at_its_moment() {
        let clock = SystemClock;
        for millis in [0, 1, 20] {
            let moment = clock.now() + Duration::from_millis(millis);
            clock.sleep_until(moment).await;
            assert!(clock.now() >= moment);
        }
    }
}
