//! `idem watch`: a live view of the records, by sweeps of a bounded pace.
//!
//! A sweep examines every record once. A store with fewer records than the pace allows in an interval is counted anew
//! for each frame; a larger one takes several, and the frame shows the last complete sweep and how far the present one
//! is.

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use idem_runtime::admin::{Entries, Entry, EntryState};
use idem_runtime::{Engine, Error};
use serde_json::{Value, json};
use tokio::time::{sleep_until, timeout_at};

use crate::arguments::Watch;
use crate::failure::Failure;
use crate::output::Output;
use crate::pace::{MOST, Pace};
use crate::state;
use crate::stats::{COUNTS, RARE, cells};
use crate::table::{Align, Table};
use crate::tally::{Counts, Tally, WINDOW};
use crate::text::{count, duration, millis, moment};

/// Operations that a frame shows, by their number of records.
const SHOWN: usize = 20;
/// Unfinished records that a frame shows.
const OLDEST: usize = 8;

pub(crate) async fn run(
    engine: &Engine,
    store: &str,
    verb: &Watch,
    max_attempts: u16,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let mut sweeper = Sweeper::new(engine, verb, max_attempts);
    let clears = !output.json && !verb.once && io::stdout().is_terminal();
    loop {
        let until = Instant::now() + verb.interval;
        let failed = sweeper.advance(until).await.err();
        if verb.once
            && let Some(error) = failed
        {
            return Err(error.into());
        }
        let frame = Frame {
            store,
            verb,
            sweeper: &sweeper,
            failed,
        };
        if output.json {
            Output::line(&frame.json())?;
        } else {
            Output::text(|out| {
                if clears {
                    // Home, and the rest of the screen.
                    write!(out, "\x1b[H\x1b[2J")?;
                }
                frame.write(out)
            })?;
        }
        if verb.once {
            return Ok(ExitCode::SUCCESS);
        }
        sleep_until(until.into()).await;
    }
}

/// An unfinished record, as a sweep saw it.
#[derive(Clone, Debug)]
struct Unfinished {
    state: &'static str,
    operation: String,
    digest: String,
    age: Duration,
    attempts: u16,
}

/// A sweep, as far as it has come.
#[derive(Debug)]
struct Sweep {
    tally: Tally,
    /// The oldest first.
    unfinished: Vec<Unfinished>,
    records: u64,
    began: Instant,
    /// `None`: it is not complete.
    took: Option<Duration>,
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

/// Sweeps, one after the other.
struct Sweeper<'a> {
    engine: &'a Engine,
    verb: &'a Watch,
    max_attempts: u16,
    pace: Pace,
    entries: Entries,
    present: Sweep,
    complete: Option<Sweep>,
    sweeps: u64,
}

impl<'a> Sweeper<'a> {
    fn new(engine: &'a Engine, verb: &'a Watch, max_attempts: u16) -> Self {
        let pace = Pace::new(verb.rate);
        Self {
            engine,
            verb,
            max_attempts,
            entries: entries(engine, verb).step_size(pace.step_size()),
            pace,
            present: Sweep::new(),
            complete: None,
            sweeps: 0,
        }
    }

    /// Makes steps until the sweep is complete, or the time is over.
    async fn advance(&mut self, until: Instant) -> Result<(), Error> {
        loop {
            // The pace holds between sweeps as well.
            let due = Instant::now() + self.pace.left().unwrap_or_default();
            if due > until {
                return Ok(());
            }
            self.pace.wait().await;
            // A step that is given up is made again.
            let Ok(step) = timeout_at((until + WINDOW).into(), self.entries.next_step()).await
            else {
                return Ok(());
            };
            let page = match step {
                Ok(page) => page,
                Err(error) => {
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

    /// Begins the next sweep, and returns the present one.
    fn begin(&mut self) -> Sweep {
        self.entries = entries(self.engine, self.verb).step_size(self.pace.step_size());
        std::mem::replace(&mut self.present, Sweep::new())
    }

    /// The sweep to show.
    fn shown(&self) -> &Sweep {
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

/// One view.
struct Frame<'a> {
    store: &'a str,
    verb: &'a Watch,
    sweeper: &'a Sweeper<'a>,
    failed: Option<Error>,
}

impl Frame<'_> {
    /// What the numbers cover.
    fn coverage(&self) -> String {
        let (sweep, present) = (self.sweeper.shown(), &self.sweeper.present);
        let records = count(sweep.records);
        match sweep.took {
            Some(took) => {
                let under_way = match present.records {
                    0 => String::new(),
                    records => format!("; the next one is at {}", count(records)),
                };
                format!(
                    "all {records} records, sweep {} took {}{under_way}",
                    self.sweeper.sweeps,
                    duration(took)
                )
            }
            None => format!("the first {records} records: the first sweep is not complete yet"),
        }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let sweep = self.sweeper.shown();
        let of = (self.verb.operation.as_ref()).map_or_else(String::new, |of| format!(" {of}"));
        writeln!(
            out,
            "idem watch{of}  {}  {}",
            self.store,
            moment(SystemTime::now())
        )?;
        writeln!(
            out,
            "covers {}; at most {} records/s\n",
            self.coverage(),
            count(self.verb.rate.into())
        )?;
        if let Some(error) = &self.failed {
            writeln!(out, "the store failed, the counts are old: {error}\n")?;
        }
        counts(out, &sweep.tally)?;
        if !sweep.unfinished.is_empty() {
            writeln!(out, "\noldest unfinished")?;
            let mut table = Table::new(&[
                ("STATE", Align::Left),
                ("OPERATION", Align::Left),
                ("DIGEST", Align::Left),
                ("AGE", Align::Right),
                ("ATTEMPTS", Align::Right),
            ]);
            for record in &sweep.unfinished {
                table.row(vec![
                    record.state.to_owned(),
                    record.operation.clone(),
                    record.digest.clone(),
                    duration(record.age),
                    record.attempts.to_string(),
                ]);
            }
            table.write(out)?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let sweep = self.sweeper.shown();
        let operations = sweep.tally.operations().map(|(operation, counts)| {
            let mut document = counts.json();
            document["operation"] = operation.as_str().into();
            document["ended_per_second"] = rate(counts).into();
            document
        });
        let unfinished = sweep.unfinished.iter().map(|record| {
            json!({
                "state": record.state,
                "operation": record.operation,
                "digest": record.digest,
                "age_ms": millis(record.age),
                "attempts": record.attempts,
            })
        });
        json!({
            "at": moment(SystemTime::now()),
            "records": sweep.records,
            "complete": sweep.took.is_some(),
            "sweep": self.sweeper.sweeps,
            "sweep_ms": sweep.took.map(millis),
            "next_sweep_records": self.sweeper.present.records,
            "operations": operations.collect::<Vec<_>>(),
            "unfinished": unfinished.collect::<Vec<_>>(),
            "unreadable": sweep.tally.unreadable,
            "error": self.failed.as_ref().map(ToString::to_string),
        })
    }
}

/// Calls that ended in a second, over the last minute.
#[allow(clippy::cast_precision_loss, reason = "a rate for a person")]
fn rate(counts: &Counts) -> f64 {
    counts.ended_lately as f64 / WINDOW.as_secs_f64()
}

fn counts(out: &mut dyn Write, tally: &Tally) -> io::Result<()> {
    let mut columns = vec![("OPERATION", Align::Left)];
    columns.extend(COUNTS);
    columns.push(("ENDED/S", Align::Right));
    let mut table = Table::new(&columns);
    let mut row = |operation: &str, counts: &Counts| {
        let mut row = vec![operation.to_owned()];
        row.extend(cells(counts));
        row.push(format!("{:.1}", rate(counts)));
        table.row(row);
    };
    let mut operations: Vec<_> = tally.operations().collect();
    operations.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.all()));
    let (first, others) = operations.split_at(operations.len().min(SHOWN));
    for (operation, counts) in first {
        row(operation, counts);
    }
    if !others.is_empty() {
        let sum = others
            .iter()
            .fold(Counts::default(), |sum, (_, counts)| sum.plus(counts));
        row(&format!("({} more)", others.len()), &sum);
    }
    if operations.len() > 1 {
        row("total", &tally.total());
    }
    if table.is_empty() {
        return writeln!(out, "no records");
    }
    for (head, _) in RARE {
        table.hide(head, "0");
    }
    table.write(out)
}
