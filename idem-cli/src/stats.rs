//! `idem stats`: counts and ages by operation, in one sweep over the records.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::time::Duration;

use idem_runtime::admin::{Entry, EntryState};
use idem_runtime::store::OutcomeKind;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::Session;
use crate::arguments::Stats;
use crate::failure::Failure;
use crate::output::{self, Progress};
use crate::pace::{MOST, Pace};
use crate::record;
use crate::state::is_exhausted;
use crate::table::{self, Column};
use crate::text::{count, duration, millis, records};

/// Clears a terminal and moves its cursor to the first line.
const CLEAR: &[u8] = b"\x1b[2J\x1b[H";
/// The most operations that are counted apart: names may be made of data by mistake.
const MOST_OPERATIONS: usize = 1_000;
/// The name of the others.
const OTHERS: &str = "(other operations)";

/// The names of the counts, and whether their column is shown only if one is not 0.
const COUNTS: [(&str, bool); 9] = [
    ("records", false),
    ("running", false),
    ("abandoned", false),
    // Abandoned or released ones without an attempt left; counted there as well.
    ("exhausted", true),
    ("unknown", false),
    ("released", true),
    ("values", false),
    ("errors", true),
    ("not_stored", true),
];

/// The counts of an operation.
#[derive(Clone, Debug, Default)]
struct Counts {
    numbers: [u64; COUNTS.len()],
    /// The age of the oldest record that is running, abandoned, exhausted or unknown.
    oldest_unfinished: Option<Duration>,
    oldest: Option<Duration>,
}

impl Counts {
    fn add(&mut self, entry: &Entry, max_attempts: u16) {
        let is_exhausted = is_exhausted(entry, max_attempts);
        let (name, is_unfinished) = match entry.state() {
            EntryState::Running { .. } => ("running", true),
            EntryState::Abandoned => ("abandoned", true),
            EntryState::Released => ("released", is_exhausted),
            EntryState::Answered(OutcomeKind::Error) => ("errors", false),
            EntryState::Answered(_) => ("values", false),
            EntryState::NotStored => ("not_stored", false),
            // And what a later version may add: an operator should look at it.
            _ => ("unknown", true),
        };
        for (counted, (of, _)) in self.numbers.iter_mut().zip(COUNTS) {
            let counts = of == "records" || of == name || of == "exhausted" && is_exhausted;
            *counted += u64::from(counts);
        }
        self.oldest = self.oldest.max(Some(entry.age()));
        if is_unfinished {
            self.oldest_unfinished = self.oldest_unfinished.max(Some(entry.age()));
        }
    }

    fn plus(mut self, other: &Self) -> Self {
        for (count, other) in self.numbers.iter_mut().zip(other.numbers) {
            *count += other;
        }
        self.oldest_unfinished = self.oldest_unfinished.max(other.oldest_unfinished);
        self.oldest = self.oldest.max(other.oldest);
        self
    }

    fn json(&self) -> Value {
        let mut document = json!({
            "oldest_unfinished_ms": self.oldest_unfinished.map(millis),
            "oldest_ms": self.oldest.map(millis),
        });
        for ((name, _), count) in COUNTS.into_iter().zip(self.numbers) {
            document[name] = count.into();
        }
        document
    }
}

/// The counts of each operation.
#[derive(Debug, Default)]
struct Tally {
    operations: BTreeMap<String, Counts>,
    unreadable: u64,
}

impl Tally {
    fn add(&mut self, entry: &Entry, max_attempts: u16) {
        let name = entry.operation();
        let is_known = self.operations.contains_key(name);
        let name = if is_known || self.operations.len() < MOST_OPERATIONS {
            name
        } else {
            OTHERS
        };
        let counts = self.operations.entry(name.to_owned()).or_default();
        counts.add(entry, max_attempts);
    }

    fn total(&self) -> Counts {
        let counts = self.operations.values();
        counts.fold(Counts::default(), Counts::plus)
    }
}

pub(crate) async fn run(session: &Session, verb: &Stats) -> Result<ExitCode, Failure> {
    // What is wrong with the first count will not mend itself.
    count_once(session, verb).await?;
    while let Some(every) = verb.every {
        sleep(every).await;
        if let Err(failure) = count_once(session, verb).await {
            if failure.is_silent() {
                return Err(failure);
            }
            let _ = failure.report();
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn count_once(session: &Session, verb: &Stats) -> Result<(), Failure> {
    let entries = record::entries(&session.engine, verb.operation.as_ref(), None);
    let mut pace = Pace::new(verb.scan.rate);
    let mut entries = entries.page_size(MOST).step_size(pace.step_size());
    let (mut tally, mut progress, mut seen) = (Tally::default(), Progress::new(), 0_u64);
    while let Some(page) = pace.step(&mut entries).await? {
        tally.unreadable += page.unreadable();
        for entry in page {
            tally.add(&entry, session.max_attempts);
            seen += 1;
        }
        progress.show(|| format!("{} counted, scanning …", records(seen)));
    }
    drop(progress);
    match (session.json, verb.every) {
        (true, None) => output::document(&document(&tally)),
        (true, Some(_)) => output::text(|out| writeln!(out, "{}", document(&tally))),
        (false, _) => output::text(|out| {
            if verb.every.is_some() && io::stdout().is_terminal() {
                out.write_all(CLEAR)?;
            }
            table(out, &tally)
        }),
    }
}

fn document(tally: &Tally) -> Value {
    let operations = tally.operations.iter().map(|(operation, counts)| {
        let mut document = counts.json();
        document["operation"] = operation.as_str().into();
        document
    });
    json!({
        "operations": operations.collect::<Vec<_>>(),
        "total": tally.total().json(),
        "unreadable": tally.unreadable,
    })
}

fn table(out: &mut dyn Write, tally: &Tally) -> io::Result<()> {
    if tally.operations.is_empty() {
        return writeln!(out, "no records");
    }
    let mut rows: Vec<_> = tally.operations.clone().into_iter().collect();
    if rows.len() > 1 {
        rows.push(("total".to_owned(), tally.total()));
    }
    let names = rows.iter().map(|(name, _)| name.clone());
    let mut columns = vec![Column::left("OPERATION", names)];
    for (place, (name, is_rare)) in COUNTS.into_iter().enumerate() {
        let head = name.to_uppercase().replace('_', " ");
        let counts = rows.iter().map(|(_, counts)| count(counts.numbers[place]));
        let column = Column::right(&head, counts);
        if !(is_rare && column.is_all("0")) {
            columns.push(column);
        }
    }
    let age = |age: fn(&Counts) -> Option<Duration>| {
        let ages = rows.iter().map(move |(_, counts)| age(counts));
        ages.map(|age| age.map_or_else(|| "-".to_owned(), duration))
    };
    columns.push(Column::right(
        "UNFINISHED FOR",
        age(|it| it.oldest_unfinished),
    ));
    columns.push(Column::right("OLDEST", age(|it| it.oldest)));
    table::write(out, &columns)?;
    if tally.unreadable > 0 {
        let unreadable = tally.unreadable;
        writeln!(
            out,
            "\n{unreadable} records of another layout are not counted"
        )?;
    }
    writeln!(
        out,
        "\nAges are since the last write. An exhausted record is abandoned or released as well."
    )
}
