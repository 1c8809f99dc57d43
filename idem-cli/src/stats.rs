//! `idem stats`: counts and ages by operation, in one sweep over the records.

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;

use idem_runtime::Engine;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::arguments::Stats;
use crate::failure::Failure;
use crate::output::{Output, Progress};
use crate::pace::{MOST, Pace};
use crate::table::{Align, Table};
use crate::tally::{Counts, Tally};
use crate::text::{count, duration, records};

/// Clears a terminal and moves its cursor to the first line.
const CLEAR: &[u8] = b"\x1b[2J\x1b[H";

pub(crate) async fn run(
    engine: &Engine,
    verb: &Stats,
    max_attempts: u16,
    output: &Output,
) -> Result<ExitCode, Failure> {
    // What is wrong with the first count will not mend itself.
    count_once(engine, verb, max_attempts, output).await?;
    while let Some(every) = verb.every {
        sleep(every).await;
        if let Err(failure) = count_once(engine, verb, max_attempts, output).await {
            if failure.is_silent() {
                return Err(failure);
            }
            let _ = failure.report();
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn count_once(
    engine: &Engine,
    verb: &Stats,
    max_attempts: u16,
    output: &Output,
) -> Result<(), Failure> {
    let mut entries = engine.entries();
    if let Some(operation) = &verb.operation {
        entries = entries.operation(operation.clone());
    }
    let mut pace = Pace::new(verb.scan.rate);
    entries = entries.page_size(MOST).step_size(pace.step_size());
    let (mut tally, mut progress, mut seen) = (Tally::default(), Progress::new(), 0_u64);
    while let Some(page) = pace.step(&mut entries).await? {
        tally.unreadable += page.unreadable();
        for entry in page {
            tally.add(&entry, max_attempts);
            seen += 1;
        }
        progress.show(|| format!("{} counted, scanning …", records(seen)));
    }
    drop(progress);
    match (output.json, verb.every) {
        (true, None) => Output::document(&document(&tally)),
        (true, Some(_)) => Output::line(&document(&tally)),
        (false, _) => Output::text(|out| {
            if verb.every.is_some() && io::stdout().is_terminal() {
                out.write_all(CLEAR)?;
            }
            table(out, &tally)
        }),
    }
}

fn document(tally: &Tally) -> Value {
    let operations = tally.operations().map(|(operation, counts)| {
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

/// Those of them that are shown only if one has a count.
const RARE: [(&str, Align); 4] = [COUNTS[3], COUNTS[5], COUNTS[7], COUNTS[8]];

/// The columns of counts, beside the operation.
const COUNTS: [(&str, Align); 9] = [
    ("RECORDS", Align::Right),
    ("RUNNING", Align::Right),
    ("ABANDONED", Align::Right),
    ("EXHAUSTED", Align::Right),
    ("UNKNOWN", Align::Right),
    ("RELEASED", Align::Right),
    ("VALUES", Align::Right),
    ("ERRORS", Align::Right),
    ("NOT STORED", Align::Right),
];

fn cells(counts: &Counts) -> Vec<String> {
    let counts = [
        counts.all(),
        counts.running,
        counts.abandoned,
        counts.exhausted,
        counts.unknown,
        counts.released,
        counts.values,
        counts.errors,
        counts.not_stored,
    ];
    counts.into_iter().map(count).collect()
}

fn table(out: &mut dyn Write, tally: &Tally) -> io::Result<()> {
    let mut columns = vec![("OPERATION", Align::Left)];
    columns.extend(COUNTS);
    columns.extend([("UNFINISHED FOR", Align::Right), ("OLDEST", Align::Right)]);
    let mut table = Table::new(&columns);
    let age = |age: Option<_>| age.map_or_else(|| "-".to_owned(), duration);
    let mut row = |operation: &str, counts: &Counts| {
        let mut row = vec![operation.to_owned()];
        row.extend(cells(counts));
        row.extend([age(counts.oldest_unfinished), age(counts.oldest)]);
        table.row(row);
    };
    for (operation, counts) in tally.operations() {
        row(operation, counts);
    }
    if tally.operations().len() > 1 {
        row("total", &tally.total());
    }
    if table.is_empty() {
        return writeln!(out, "no records");
    }
    for (head, _) in RARE {
        table.hide(head, "0");
    }
    table.write(out)?;
    if tally.unreadable > 0 {
        writeln!(
            out,
            "\n{} records of another layout are not counted",
            tally.unreadable
        )?;
    }
    writeln!(
        out,
        "\nAges are since the last write. An exhausted record is abandoned or released as well."
    )
}
