//! The pace of a scan: its steps are spread, so that other clients find the server idle between them.

use std::time::{Duration, Instant};

use idem_runtime::Error;
use idem_runtime::admin::{Entries, EntryPage};
use tokio::time::sleep_until;

/// The most records of a step.
pub(crate) const MOST: usize = 1_000;
/// Steps in a second: the more, the fewer commands follow each other closely.
const STEPS: u32 = 500;
/// Pause after a step, in times of its length: a server whose steps take long is busy, or reads from its disk.
const REST: u32 = 2;

/// Steps at a pace.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The most records of a step.
    step: u32,
    /// The least time from one step to the next.
    apart: Duration,
    /// The next step is not due before.
    due: Option<Instant>,
}

impl Pace {
    /// At most `rate` records in a second.
    pub(crate) fn new(rate: u32) -> Self {
        let step = (rate / STEPS).clamp(1, 1_000);
        Self {
            step,
            apart: Duration::from_secs_f64(f64::from(step) / f64::from(rate.max(1))),
            due: None,
        }
    }

    /// The most records of a step.
    pub(crate) fn step_size(&self) -> usize {
        self.step as usize
    }

    /// The next step of a listing, in its time. After it the server rests.
    pub(crate) async fn step(&mut self, entries: &mut Entries) -> Result<Option<EntryPage>, Error> {
        let began = self.wait().await;
        let page = entries.next_step().await;
        self.rest(began, Instant::now());
        page
    }

    /// Waits until the next step is due, and begins it.
    pub(crate) async fn wait(&mut self) -> Instant {
        if let Some(due) = self.due {
            sleep_until(due.into()).await;
        }
        let began = Instant::now();
        self.due = Some(began + self.apart);
        began
    }

    pub(crate) fn rest(&mut self, began: Instant, ended: Instant) {
        self.due = self.due.max(Some(ended + (ended - began) * REST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due_after(rate: u32, took: Duration) -> Duration {
        let mut pace = Pace::new(rate);
        let began = Instant::now();
        pace.due = Some(began + pace.apart);
        pace.rest(began, began + took);
        pace.due.unwrap() - began
    }

    #[test]
    fn quick_steps_keep_the_rate() {
        let apart = Duration::from_millis(2);
        assert_eq!(due_after(10_000, Duration::ZERO), apart);
        assert_eq!(due_after(10_000, Duration::from_micros(600)), apart);
    }

    #[test]
    fn a_slow_server_is_asked_a_third_of_the_time() {
        let took = Duration::from_millis(10);
        assert_eq!(due_after(10_000, took), took * 3);
        assert_eq!(due_after(10_000_000, took), took * 3);
    }
}
