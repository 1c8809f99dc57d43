//! The pace of a scan: its steps are spread, so that other clients find the server idle between them.

use std::time::{Duration, Instant};

use idem_runtime::Error;
use idem_runtime::admin::{Entries, EntryPage};
use tokio::time::sleep;

/// The most records of a step.
pub(crate) const MOST: usize = 1_000;
/// Steps in a second: the more, the fewer commands follow each other closely.
const STEPS: u32 = 500;

/// Steps at a pace.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The most records of a step.
    step: u32,
    /// The least time from one step to the next.
    apart: Duration,
    last: Option<Instant>,
}

impl Pace {
    /// At most `rate` records in a second.
    pub(crate) fn new(rate: u32) -> Self {
        let step = (rate / STEPS).clamp(1, 1_000);
        Self {
            step,
            apart: Duration::from_secs_f64(f64::from(step) / f64::from(rate.max(1))),
            last: None,
        }
    }

    /// The most records of a step.
    pub(crate) fn step_size(&self) -> usize {
        self.step as usize
    }

    /// The next step of a listing, in its time.
    pub(crate) async fn step(&mut self, entries: &mut Entries) -> Result<Option<EntryPage>, Error> {
        self.wait().await;
        entries.next_step().await
    }

    /// Waits until the next step is due.
    pub(crate) async fn wait(&mut self) {
        if let Some(left) = self.left() {
            sleep(left).await;
        }
        self.last = Some(Instant::now());
    }

    /// The time until the next step is due.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.apart.checked_sub(self.last?.elapsed())
    }
}
