//! Printed results, one row a case.

use std::io::{Write as _, stdout};

use serde::Serialize;

use super::options::refuse;
use super::sample::{Sample, median};

/// A row. Figures that make no sense for a case are `null`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    #[serde(rename = "impl")]
    pub(crate) made_by: String,
    pub(crate) case: String,
    pub(crate) store: String,
    pub(crate) concurrency: usize,
    pub(crate) value_bytes: usize,
    pub(crate) ops_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) commands_per_call: Option<f64>,
    pub(crate) server_cpu_us_per_call: Option<f64>,
    /// Calls per second by those of the raw row, round by round; the median of the rounds.
    pub(crate) ratio_to_raw: Option<f64>,
    /// Where the middle 90 % of the rounds' ratios begin and end.
    pub(crate) ratio_spread: Option<[f64; 2]>,
}

impl Row {
    /// A row of idem's, of the medians of these samples.
    pub(crate) fn of(
        case: &str,
        store: &str,
        concurrency: usize,
        value_bytes: usize,
        samples: &[Sample],
    ) -> Self {
        let median = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure));
        Self {
            made_by: "idem".to_owned(),
            case: case.to_owned(),
            store: store.to_owned(),
            concurrency,
            value_bytes,
            ops_per_s: median(Sample::per_second),
            p50_us: median(|sample| sample.percentile(50)),
            p99_us: median(|sample| sample.percentile(99)),
            commands_per_call: None,
            server_cpu_us_per_call: None,
            ratio_to_raw: None,
            ratio_spread: None,
        }
    }
}

/// Prints rows as they come.
#[derive(Debug)]
pub(crate) struct Printer {
    json: bool,
    /// The subject of the last heading.
    group: Option<(String, usize, usize)>,
    printed: usize,
}

impl Printer {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            group: None,
            printed: 0,
        }
    }

    /// Ends the program if there was nothing to print: a name was wrong.
    pub(crate) fn end(&self) {
        if self.printed == 0 {
            refuse("nothing was measured: no case, implementation or store has such a name");
        }
    }

    pub(crate) fn rows(&mut self, rows: &[Row]) {
        for row in rows {
            self.row(row);
        }
    }

    pub(crate) fn row(&mut self, row: &Row) {
        self.printed += 1;
        let mut out = stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, row).unwrap();
            writeln!(out).unwrap();
        } else {
            let group = (row.store.clone(), row.value_bytes, row.concurrency);
            if self.group.as_ref() != Some(&group) {
                let (store, bytes, concurrency) = &group;
                writeln!(
                    out,
                    "\n{store}, {bytes} bytes, {concurrency} at once\n\
                     {:<20}{:<27}{:>11}{:>10}{:>10}{:>9}{:>9}{:>8}{:>13}",
                    "case",
                    "impl",
                    "ops/s",
                    "p50 µs",
                    "p99 µs",
                    "commands",
                    "cpu µs",
                    "ratio",
                    "90 %"
                )
                .unwrap();
                self.group = Some(group);
            }
            writeln!(
                out,
                "{:<20}{:<27}{:>11.0}{:>10.1}{:>10.1}{:>9}{:>9}{:>8}{:>13}",
                row.case,
                row.made_by,
                row.ops_per_s,
                row.p50_us,
                row.p99_us,
                figure(row.commands_per_call),
                figure(row.server_cpu_us_per_call),
                figure(row.ratio_to_raw),
                row.ratio_spread
                    .map_or_else(String::new, |[from, to]| format!("{from:.2}–{to:.2}")),
            )
            .unwrap();
        }
        // A run takes minutes: its rows appear one by one.
        out.flush().unwrap();
    }
}

fn figure(figure: Option<f64>) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.2}"))
}
