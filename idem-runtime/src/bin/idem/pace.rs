//! The pace of a scan: its steps are spread, so that other clients find the server idle between them.

use std::time::{Duration, Instant};

use idem_runtime::Error;
use idem_runtime::admin::{Entries, EntryPage};
use tokio::time::sleep;

/// The records that a step of a listing examines at most.
pub(crate) const STEP: u32 = 1_000;

/// Steps at a pace.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The least time from one step to the next.
    apart: Duration,
    last: Option<Instant>,
}

impl Pace {
    /// At most `rate` records in a second, examined in steps of this many.
    pub(crate) fn new(rate: u32, step: u32) -> Self {
        Self {
            apart: Duration::from_secs_f64(f64::from(step) / f64::from(rate.max(1))),
            last: None,
        }
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
