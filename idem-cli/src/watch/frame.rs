//! One view of a watch, as large as its terminal.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::sweep::{OLDEST, Sweeper};
use crate::arguments::Watch;
use crate::stats::{COUNTS, RARE, cells};
use crate::table::{Align, Table};
use crate::tally::{Counts, Tally, WINDOW};
use crate::text::{count, duration, millis, moment, shortened, wrapped};

/// Operations that a frame shows without a terminal, by their number of records.
const SHOWN: usize = 20;
/// Columns of counts that a narrow terminal does without, the first one first.
const EXPENDABLE: [&str; 5] = ["VALUES", "ERRORS", "RELEASED", "ENDED/S", "RECORDS"];
/// The least width of an operation's name, if it is longer.
const NAME: usize = 20;
/// The store is late after this time.
const LATE: Duration = Duration::from_secs(1);

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// One view.
pub(super) struct Frame<'a> {
    pub(super) store: &'a str,
    pub(super) verb: &'a Watch,
    pub(super) sweeper: &'a Sweeper<'a>,
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

    /// What keeps the counts from being renewed.
    fn trouble(&self) -> Option<String> {
        let error = self.sweeper.failed.as_ref();
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        match self.sweeper.waiting() {
            Some(waited) if waited >= LATE => {
                let waited = duration(waited);
                Some(format!(
                    "no reply of the store for {waited}, the counts are old{error}"
                ))
            }
            _ if !error.is_empty() => Some(format!("the store failed, the counts are old{error}")),
            _ => None,
        }
    }

    /// The lines of the view: fewer than the screen has, so that the cursor is below them.
    pub(super) fn lines(&self, screen: Option<Screen>) -> Vec<String> {
        let columns = screen.map_or(usize::MAX, |screen| screen.columns);
        let sweep = self.sweeper.shown();
        let of = (self.verb.operation.as_ref()).map_or_else(String::new, |of| format!(" {of}"));
        let now = moment(SystemTime::now());
        let room = columns.saturating_sub(16 + of.chars().count() + now.chars().count());
        let store = shortened(self.store, room);
        let mut lines = wrapped(&format!("idem watch{of}  {store}  {now}"), columns);
        let rate = count(self.verb.rate.into());
        let covers = format!("covers {}; at most {rate} records/s", self.coverage());
        lines.extend(wrapped(&covers, columns));
        if let Some(trouble) = self.trouble() {
            lines.extend([vec![String::new()], wrapped(&trouble, columns)].concat());
        }
        lines.push(String::new());
        // The head of the counts, the others and the total; an empty line, a title and a head; the cursor.
        let room = screen.map(|screen| screen.rows.saturating_sub(lines.len() + 7));
        let operations = sweep.tally.operations().len();
        let oldest = match room {
            // Half of it, and what the operations leave.
            Some(room) => OLDEST.min((room / 2).max(room.saturating_sub(operations))),
            None => OLDEST,
        };
        let oldest = oldest.min(sweep.unfinished.len());
        let shown = room.map_or(SHOWN, |room| room.saturating_sub(oldest).max(1));
        lines.extend(counts(&sweep.tally, shown, columns));
        if oldest > 0 {
            lines.extend([String::new(), "oldest unfinished".to_owned()]);
            lines.extend(self.unfinished(oldest, columns));
        }
        let crop = |line: String| line.chars().take(columns).collect();
        let rows = screen.map_or(usize::MAX, |screen| screen.rows.saturating_sub(1));
        lines.into_iter().take(rows).map(crop).collect()
    }

    /// A table of the oldest unfinished records.
    fn unfinished(&self, most: usize, columns: usize) -> Vec<String> {
        let mut table = Table::new(&[
            ("STATE", Align::Left),
            ("OPERATION", Align::Left),
            ("DIGEST", Align::Left),
            ("AGE", Align::Right),
            ("ATTEMPTS", Align::Right),
        ]);
        for record in self.sweeper.shown().unfinished.iter().take(most) {
            table.row(vec![
                record.state.to_owned(),
                record.operation.clone(),
                record.digest.clone(),
                duration(record.age),
                record.attempts.to_string(),
            ]);
        }
        // The digest is whole, because `idem why` takes it.
        table.fit(columns, ("OPERATION", 15), &["ATTEMPTS", "AGE", "STATE"]);
        table.lines()
    }

    pub(super) fn json(&self) -> Value {
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
            "waiting_ms": self.sweeper.waiting().map(millis),
            "error": self.sweeper.failed,
        })
    }
}

/// Calls that ended in a second, over the last minute.
#[allow(clippy::cast_precision_loss, reason = "a rate for a person")]
fn rate(counts: &Counts) -> f64 {
    counts.ended_lately as f64 / WINDOW.as_secs_f64()
}

/// A table of the counts of so many operations, the larger ones.
fn counts(tally: &Tally, most: usize, columns: usize) -> Vec<String> {
    let mut heads = vec![("OPERATION", Align::Left)];
    heads.extend(COUNTS);
    heads.push(("ENDED/S", Align::Right));
    let mut table = Table::new(&heads);
    let mut row = |operation: &str, counts: &Counts| {
        let mut row = vec![operation.to_owned()];
        row.extend(cells(counts));
        row.push(format!("{:.1}", rate(counts)));
        table.row(row);
    };
    let mut operations: Vec<_> = tally.operations().collect();
    operations.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.all()));
    // The row for the others has room for one of them.
    let most = if operations.len() == most + 1 {
        most + 1
    } else {
        most
    };
    let (first, others) = operations.split_at(operations.len().min(most));
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
        return vec!["no records".to_owned()];
    }
    for (head, _) in RARE {
        table.hide(head, "0");
    }
    table.fit(columns, ("OPERATION", NAME), &EXPENDABLE);
    table.lines()
}
