//! `idem stats`: counts, ages and sizes by operation, in one sweep over the records.

use std::collections::BTreeMap;
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
use crate::text::{bytes, count, duration, records};

/// Clears a terminal and moves its cursor to the first line.
const CLEAR: &[u8] = b"\x1b[2J\x1b[H";

/// Digests of records to be read, chosen so that each record of an operation is as likely as any other.
#[derive(Debug, Default)]
struct Sample {
    seen: u64,
    digests: Vec<String>,
}

/// The bytes of an operation's records, estimated by a sample.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// How many records were read.
    sampled: u64,
    /// Their mean.
    mean: u64,
    /// The mean for all of them.
    all: u64,
}

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
    let (mut tally, mut samples) = (Tally::default(), BTreeMap::<String, Sample>::new());
    let (mut random, mut progress, mut seen) = (Random::new(), Progress::new(), 0_u64);
    while let Some(page) = pace.step(&mut entries).await? {
        tally.unreadable += page.unreadable();
        for entry in page {
            tally.add(&entry, max_attempts);
            seen += 1;
            if samples.len() < 1_000 || samples.contains_key(entry.operation()) {
                let sample = samples.entry(entry.operation().to_owned()).or_default();
                sample.offer(entry.key().to_string(), verb.sample, &mut random);
            }
        }
        progress.show(|| format!("{} counted, scanning …", records(seen)));
    }
    drop(progress);
    let mut sizes = BTreeMap::new();
    for (operation, sample) in samples {
        if let Some(size) = sample.read(engine, &operation).await? {
            sizes.insert(operation, size);
        }
    }
    match (output.json, verb.every) {
        (true, None) => Output::document(&document(&tally, &sizes)),
        (true, Some(_)) => Output::line(&document(&tally, &sizes)),
        (false, _) => Output::text(|out| {
            if verb.every.is_some() && io::stdout().is_terminal() {
                out.write_all(CLEAR)?;
            }
            table(out, &tally, &sizes)
        }),
    }
}

impl Sample {
    /// Reservoir sampling.
    fn offer(&mut self, digest: String, most: u32, random: &mut Random) {
        self.seen += 1;
        if self.digests.len() < most as usize {
            self.digests.push(digest);
        } else if most > 0 {
            let place = usize::try_from(random.next() % self.seen).unwrap_or(usize::MAX);
            if let Some(chosen) = self.digests.get_mut(place) {
                *chosen = digest;
            }
        }
    }

    async fn read(&self, engine: &Engine, operation: &str) -> Result<Option<Size>, Failure> {
        let (mut sampled, mut sum) = (0_u64, 0_u64);
        for digest in &self.digests {
            let entry = engine.entry(operation, digest).await?;
            // It may have expired since.
            if let Some(bytes) = entry.and_then(|entry| entry.record_bytes()) {
                sampled += 1;
                sum += bytes as u64;
            }
        }
        let mean = sum.checked_div(sampled);
        Ok(mean.map(|mean| Size {
            sampled,
            mean,
            all: mean.saturating_mul(self.seen),
        }))
    }
}

/// Numbers that need not be secret: `SplitMix64`.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new() -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        Self(RandomState::new().hash_one(0))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn document(tally: &Tally, sizes: &BTreeMap<String, Size>) -> Value {
    let operations = tally.operations().map(|(operation, counts)| {
        let mut document = counts.json();
        document["operation"] = operation.as_str().into();
        document["bytes"] = sizes.get(operation).map_or(
            Value::Null,
            |size| json!({ "estimated": size.all, "mean": size.mean, "sampled": size.sampled }),
        );
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

fn table(out: &mut dyn Write, tally: &Tally, sizes: &BTreeMap<String, Size>) -> io::Result<()> {
    let mut columns = vec![("OPERATION", Align::Left)];
    columns.extend(COUNTS);
    columns.extend([
        ("UNFINISHED FOR", Align::Right),
        ("OLDEST", Align::Right),
        ("BYTES (EST.)", Align::Right),
    ]);
    let mut table = Table::new(&columns);
    let age = |age: Option<_>| age.map_or_else(|| "-".to_owned(), duration);
    let mut row = |operation: &str, counts: &Counts, size: Option<u64>| {
        let mut row = vec![operation.to_owned()];
        row.extend(cells(counts));
        row.extend([
            age(counts.oldest_unfinished),
            age(counts.oldest),
            size.map_or_else(|| "-".to_owned(), bytes),
        ]);
        table.row(row);
    };
    for (operation, counts) in tally.operations() {
        row(operation, counts, sizes.get(operation).map(|size| size.all));
    }
    if tally.operations().len() > 1 {
        let all = sizes.values().map(|size| size.all).sum();
        row(
            "total",
            &tally.total(),
            Some(all).filter(|_| !sizes.is_empty()),
        );
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
        "\nAges are since the last write. An exhausted record is abandoned or released as well. Bytes are an estimate: the \
         mean of\n{} sampled records, without what the store adds to each. Hit rates are in the metrics of the services; \
         no store has them.",
        count(sizes.values().map(|size| size.sampled).sum())
    )
}
