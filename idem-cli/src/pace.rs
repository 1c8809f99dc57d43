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

/// Paced steps, with a line of progress on a terminal.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The most records of a step.
    step: u32,
    /// The least time from one step to the next.
    apart: Duration,
    /// The next step is not due before.
    due: Option<Instant>,
    /// The kind of records: `found`.
    verb: &'static str,
    /// The number of these records.
    pub(crate) records: u64,
    /// The first line comes after a while: a short scan shows none.
    shown: Instant,
}

impl Pace {
    /// At most `rate` records in a second.
    pub(crate) fn new(rate: u32, verb: &'static str) -> Self {
        let step = rate.div_ceil(STEPS).clamp(1, 1_000);
        let seconds = f64::from(step) / f64::from(rate.max(1));
        Self {
            step,
            apart: Duration::from_secs_f64(seconds.max(1.0 / f64::from(STEPS))),
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

    /// A request in its time. After it the server rests.
    async fn at_pace<T>(&mut self, request: impl Future<Output = T>) -> T {
        let began = self.wait().await;
        let reply = request.await;
        self.rest(began, Instant::now());
        reply
    }

    /// The next step of a listing.
    pub(crate) async fn step(&mut self, entries: &mut Entries) -> Result<Option<EntryPage>, Error> {
        let page = self.at_pace(entries.next_step()).await;
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
        let digest = listed.key().to_string();
        match self
            .at_pace(engine.entry(listed.operation(), &digest))
            .await
        {
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

    #[tokio::test]
    async fn a_server_that_replies_late_rests() {
        let (mut pace, took) = (Pace::new(10_000, "found"), Duration::from_millis(5));
        let began = Instant::now();
        pace.at_pace(async { std::thread::sleep(took) }).await;
        assert!(pace.due >= Some(began + took * (REST + 1)));
    }

    #[test]
    fn steps_keep_the_rate_and_a_slow_server_is_asked_a_third_of_the_time() {
        let micros = Duration::from_micros;
        for (rate, took, due) in [
            (10_000, 0, 2_000),
            (10_000, 600, 2_000),
            (10_000, 10_000, 30_000),
            (10_000_000, 10_000, 30_000),
            (10_000_000, 0, 2_000),
            (800, 0, 2_500),
        ] {
            let (mut pace, began) = (Pace::new(rate, "found"), Instant::now());
            pace.due = Some(began + pace.apart);
            pace.rest(began, began + micros(took));
            assert_eq!(pace.due, Some(began + micros(due)), "{rate}, {took}");
        }
    }
}
