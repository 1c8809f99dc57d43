//! The pace of a scan: its steps are spread, so that other clients find the server idle between them.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use idem_runtime::admin::{Entries, Entry, EntryPage};
use idem_runtime::{Engine, Error, ErrorKind};
use tokio::time::sleep_until;

use crate::text::records;

/// Steps in a second: the more, the fewer commands follow each other closely.
const STEPS: u32 = 500;
/// Pause after a step, in times of its length: a server whose steps take long is busy, or reads from its disk.
const REST: u32 = 2;
/// Time between two lines of progress.
const APART: Duration = Duration::from_millis(250);

/// Steps at a pace, with a line of progress on a terminal, which is cleared when this is dropped.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The most records of a step.
    step: u32,
    /// The least time from one step to the next.
    apart: Duration,
    /// The next step is not due before.
    due: Option<Instant>,
    /// What is done with a record: `scanned`.
    verb: &'static str,
    /// The number of records with which it is done.
    pub(crate) records: u64,
    /// The first line comes after a while: a short scan shows none.
    shown: Instant,
}

impl Pace {
    /// At most `rate` records in a second.
    pub(crate) fn new(rate: u32, verb: &'static str) -> Self {
        let step = (rate / STEPS).clamp(1, 1_000);
        Self {
            step,
            apart: Duration::from_secs_f64(f64::from(step) / f64::from(rate.max(1))),
            due: None,
            verb,
            records: 0,
            shown: Instant::now(),
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
        if let Ok(Some(page)) = &page {
            self.records += page.entries().len() as u64;
        }
        page
    }

    /// A listed record with its attempts and its answer; `None` where it has expired by now, or is too large.
    pub(crate) async fn whole(
        &mut self,
        engine: &Engine,
        listed: &Entry,
    ) -> Result<Option<Entry>, Error> {
        self.wait().await;
        let digest = listed.key().to_string();
        match engine.entry(listed.operation(), &digest).await {
            Err(error)
                if matches!(error.kind(), ErrorKind::UnknownRecord | ErrorKind::TooLarge) =>
            {
                Ok(None)
            }
            whole => whole,
        }
    }

    /// Waits until the next step is due, and begins it.
    pub(crate) async fn wait(&mut self) -> Instant {
        if io::stderr().is_terminal() && self.shown.elapsed() >= APART {
            self.shown = Instant::now();
            let (records, verb) = (records(self.records), self.verb);
            let _ = write!(io::stderr(), "\r\x1b[2K{records} {verb} …");
        }
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

impl Drop for Pace {
    fn drop(&mut self) {
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_the_rate_and_a_slow_server_is_asked_a_third_of_the_time() {
        let micros = Duration::from_micros;
        for (rate, took, due) in [
            (10_000, 0, 2_000),
            (10_000, 600, 2_000),
            (10_000, 10_000, 30_000),
            (10_000_000, 10_000, 30_000),
        ] {
            let (mut pace, began) = (Pace::new(rate, "scanned"), Instant::now());
            pace.due = Some(began + pace.apart);
            pace.rest(began, began + micros(took));
            assert_eq!(pace.due, Some(began + micros(due)), "{rate}, {took}");
        }
    }
}
