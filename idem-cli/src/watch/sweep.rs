//! Sweeps over the records, one after the other, at a bounded pace.

use std::pin::Pin;
use std::time::{Duration, Instant};

use idem_runtime::admin::{Entries, Entry, EntryPage, EntryState};
use idem_runtime::{Engine, Error};
use tokio::time::timeout_at;

use crate::arguments::Watch;
use crate::failure::reason;
use crate::pace::{MOST, Pace};
use crate::state;
use crate::tally::{Tally, WINDOW};

/// Unfinished records that a sweep keeps.
pub(super) const OLDEST: usize = 8;

/// An unfinished record, as a sweep saw it.
#[derive(Clone, Debug)]
pub(super) struct Unfinished {
    pub(super) state: &'static str,
    pub(super) operation: String,
    pub(super) digest: String,
    pub(super) age: Duration,
    pub(super) attempts: u16,
}

/// A sweep, as far as it has come.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) tally: Tally,
    /// The oldest first.
    pub(super) unfinished: Vec<Unfinished>,
    pub(super) records: u64,
    began: Instant,
    /// `None`: it is not complete.
    pub(super) took: Option<Duration>,
}

impl Sweep {
    fn new() -> Self {
        Self {
            tally: Tally::default(),
            unfinished: Vec::new(),
            records: 0,
            began: Instant::now(),
            took: None,
        }
    }

    fn add(&mut self, entry: &Entry, max_attempts: u16) {
        self.records += 1;
        self.tally.add(entry, max_attempts);
        let state = match entry.state() {
            _ if state::is_exhausted(entry, max_attempts) => "exhausted",
            EntryState::Answered(_) | EntryState::Released | EntryState::NotStored => return,
            _ => state::name(entry),
        };
        let age = entry.age();
        let place = self.unfinished.partition_point(|other| other.age >= age);
        if place < OLDEST {
            self.unfinished.insert(
                place,
                Unfinished {
                    state,
                    operation: entry.operation().to_owned(),
                    digest: entry.key().to_string(),
                    age,
                    attempts: entry.attempts(),
                },
            );
            self.unfinished.truncate(OLDEST);
        }
    }
}

/// A step of a listing, which gives the listing back.
type Step = Pin<Box<dyn Future<Output = (Entries, Result<Option<EntryPage>, Error>)>>>;

/// Sweeps, one after the other.
pub(super) struct Sweeper<'a> {
    engine: &'a Engine,
    verb: &'a Watch,
    max_attempts: u16,
    pace: Pace,
    /// `None` while a step is under way.
    entries: Option<Entries>,
    /// The step that is under way, and its begin.
    step: Option<(Step, Instant)>,
    /// The begin of the first step that has had no reply since the last reply.
    silent: Option<Instant>,
    /// The failure of a step since the last reply.
    pub(super) failed: Option<String>,
    pub(super) present: Sweep,
    complete: Option<Sweep>,
    pub(super) sweeps: u64,
}

impl<'a> Sweeper<'a> {
    pub(super) fn new(engine: &'a Engine, verb: &'a Watch, max_attempts: u16) -> Self {
        Self {
            engine,
            verb,
            max_attempts,
            pace: Pace::new(verb.rate),
            entries: None,
            step: None,
            silent: None,
            failed: None,
            present: Sweep::new(),
            complete: None,
            sweeps: 0,
        }
    }

    /// Makes steps until the sweep is complete, or the time is over.
    ///
    /// A step without a reply is continued by the next call, so that a slow store has one request of this command.
    pub(super) async fn advance(&mut self, until: Instant) -> Result<(), Error> {
        loop {
            if self.step.is_none() {
                // The pace holds between sweeps as well.
                let due = Instant::now() + self.pace.left().unwrap_or_default();
                if due > until {
                    return Ok(());
                }
                self.pace.wait().await;
            }
            let Some(step) = self.stepped(until).await else {
                return Ok(());
            };
            let page = match step {
                Ok(page) => page,
                Err(error) => {
                    self.failed = Some(reason(&error));
                    // After a failover a scan of Redis may leave records out: begin again.
                    self.begin();
                    return Err(error);
                }
            };
            if let Some(page) = page {
                self.present.tally.unreadable += page.unreadable();
                let is_last = page.cursor().is_none();
                for entry in page {
                    self.present.add(&entry, self.max_attempts);
                }
                if !is_last {
                    continue;
                }
            }
            self.present.took = Some(self.present.began.elapsed());
            self.sweeps += 1;
            let complete = self.begin();
            self.complete = Some(complete);
            return Ok(());
        }
    }

    /// The result of the step under way, or of the next one; `None`: the time is over.
    async fn stepped(&mut self, until: Instant) -> Option<Result<Option<EntryPage>, Error>> {
        self.silent.get_or_insert_with(Instant::now);
        let (step, began) = self.step.get_or_insert_with(|| {
            let mut listing = self.entries.take().unwrap_or_else(|| {
                entries(self.engine, self.verb).step_size(self.pace.step_size())
            });
            let step: Step = Box::pin(async move {
                let page = listing.next_step().await;
                (listing, page)
            });
            (step, Instant::now())
        });
        if let Ok((entries, page)) = timeout_at(until.into(), step).await {
            self.pace.rest(*began, Instant::now());
            (self.entries, self.step) = (Some(entries), None);
            if page.is_ok() {
                (self.silent, self.failed) = (None, None);
            }
            return Some(page);
        }
        if began.elapsed() > WINDOW {
            // Its connection may be dead: ask again.
            self.begin();
        }
        None
    }

    /// Whether the store has given no reply at all.
    pub(super) fn has_nothing(&self) -> bool {
        self.complete.is_none() && self.present.records == 0 && self.silent.is_some()
    }

    /// How long the store has given no reply, failures included.
    pub(super) fn waiting(&self) -> Option<Duration> {
        self.silent.map(|since| since.elapsed())
    }

    /// Begins the next sweep, and returns the present one.
    fn begin(&mut self) -> Sweep {
        (self.entries, self.step) = (None, None);
        std::mem::replace(&mut self.present, Sweep::new())
    }

    /// The sweep to show.
    pub(super) fn shown(&self) -> &Sweep {
        self.complete.as_ref().unwrap_or(&self.present)
    }
}

fn entries(engine: &Engine, verb: &Watch) -> Entries {
    let entries = engine.entries().page_size(MOST);
    match &verb.operation {
        Some(operation) => entries.operation(operation.clone()),
        None => entries,
    }
}
