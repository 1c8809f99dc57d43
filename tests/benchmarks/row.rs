//! The rows of `redis_load`, `sql_load` and `engine_load`.

use crate::line::Line;
use crate::program::{self, Ran};

const FIELDS: [&str; 11] = [
    "impl",
    "case",
    "store",
    "concurrency",
    "value_bytes",
    "ops_per_s",
    "p50_us",
    "p99_us",
    "commands_per_call",
    "server_cpu_us_per_call",
    "ratio_to_raw",
];

/// What a row is about: who, which case, in which store, how many at once, and how large an answer.
pub(crate) type Name = (String, String, String, u64, u64);

/// A row whose figures are possible.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) line: Line,
    pub(crate) made_by: String,
    pub(crate) case: String,
    pub(crate) store: String,
    pub(crate) concurrency: u64,
    pub(crate) value_bytes: u64,
    /// Infinite where all who waited had the answer no later than who ran.
    pub(crate) ops_per_s: f64,
    pub(crate) commands: Option<f64>,
    pub(crate) server_cpu: Option<f64>,
    pub(crate) ratio: Option<f64>,
}

impl Row {
    fn parse(text: &str) -> Self {
        let line = Line::parse(text);
        line.has_just(&FIELDS);
        let row = Self {
            made_by: line.word("impl").to_owned(),
            case: line.word("case").to_owned(),
            store: line.word("store").to_owned(),
            concurrency: line.count("concurrency"),
            value_bytes: line.count("value_bytes"),
            ops_per_s: line.figure("ops_per_s").unwrap_or(f64::INFINITY),
            commands: line.figure("commands_per_call"),
            server_cpu: line.figure("server_cpu_us_per_call"),
            ratio: line.figure("ratio_to_raw"),
            line,
        };
        row.check_latencies();
        row
    }

    /// Whether this is about duplicates that wait. They may have the answer no later than the one that ran.
    pub(crate) fn is_of_waiting(&self) -> bool {
        self.case.starts_with("wait")
    }

    fn check_latencies(&self) {
        let [p50, p99] = ["p50_us", "p99_us"].map(|name| self.line.figure(name));
        let told = &self.line;
        let (Some(p50), Some(p99)) = (p50, p99) else {
            panic!("no latencies: {told:?}");
        };
        assert!(p50 <= p99, "{told:?}");
        if self.is_of_waiting() && p99 == 0.0 {
            assert_eq!(p50, 0.0, "{told:?}");
            return;
        }
        told.positive("ops_per_s");
        if self.is_of_waiting() {
            assert!(p50 >= 0.0, "{told:?}");
            return;
        }
        told.positive("p50_us");
        // Half of the calls took p50 or longer, and together no longer than all workers had: arithmetic,
        // whatever the machine does. Half a call for what is rounded, and one part in a hundred.
        let busy = (self.ops_per_s - 0.5) / 1e6 * p50 / 2.0;
        assert!(
            busy <= 1.01 * self.concurrency as f64,
            "calls a second and latencies are not of the same calls: {told:?}"
        );
    }

    pub(crate) fn name(&self) -> Name {
        let (made_by, case) = (self.made_by.clone(), self.case.clone());
        let store = self.store.clone();
        (made_by, case, store, self.concurrency, self.value_bytes)
    }
}

/// All rows that a benchmark prints in one round, which is as short as can be. Their ratios are right.
pub(crate) fn rows(benchmark: &str, arguments: &str) -> Vec<Row> {
    let words = format!("--json --rounds 1 --slice 1 {arguments}");
    rows_of(&program::run(benchmark, &words))
}

pub(crate) fn rows_of(ran: &Ran) -> Vec<Row> {
    let rows: Vec<_> = ran.printed().lines().map(Row::parse).collect();
    for row in &rows {
        check_ratio(row, &rows);
    }
    rows
}

/// Where the same case was measured without idem there is a ratio, and it is what it says.
fn check_ratio(row: &Row, rows: &[Row]) {
    let (case, raw) = match row.case.as_str() {
        "first_vs_unfenced" => ("first", "raw_unfenced"),
        case => (case, "raw"),
    };
    let raw = rows.iter().find(|other| {
        let (of_row, of_other) = (row.name(), other.name());
        other.made_by == raw
            && other.case == case
            && (of_row.2, of_row.3, of_row.4) == (of_other.2, of_other.3, of_other.4)
    });
    let Some(raw) = raw else {
        assert_eq!(row.ratio, None, "a ratio to what? {:?}", row.line);
        return;
    };
    let ratio = row.line.positive("ratio_to_raw");
    // Calls a second are printed without fractions, and a ratio with three places.
    let least = (row.ops_per_s - 0.5) / (raw.ops_per_s + 0.5) - 0.001;
    let most = (row.ops_per_s + 0.5) / (raw.ops_per_s - 0.5) + 0.001;
    assert!(
        least <= ratio && ratio <= most,
        "of one round, so from {least} to {most}: {:?}",
        row.line
    );
}

/// Fails if another row is there, or one is missing.
pub(crate) fn assert_names(rows: &[Row], mut wanted: Vec<Name>) {
    wanted.sort();
    let mut there: Vec<_> = rows.iter().map(Row::name).collect();
    there.sort();
    let missing: Vec<_> = wanted.iter().filter(|name| !there.contains(name)).collect();
    let more: Vec<_> = there.iter().filter(|name| !wanted.contains(name)).collect();
    assert!(
        missing.is_empty() && more.is_empty(),
        "missing: {missing:?}, not wanted: {more:?}"
    );
    assert_eq!(there, wanted, "a row is there twice");
}
