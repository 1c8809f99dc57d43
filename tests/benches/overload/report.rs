//! The report: a row a load, and the goals of each.

use std::io::{Write as _, stdout};

use serde::Serialize;
use serde_json::{Value, json};

use super::audit::Audit;
use super::load::{Latency, Measured, Peak};

/// The least goodput under a load, as a part of the best under a smaller one.
const GOODPUT: f64 = 0.8;
/// The claim deadline, and what a timer on a busy machine adds.
const REFUSED_MS: f64 = 2_250.0;
/// The claim deadline, and a statement for the completion.
const ADMITTED_MS: f64 = 4_000.0;
const RECOVERY_S: f64 = 2.0;

/// One load on one store.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) store: String,
    /// `load`, `stopped` or `burst`.
    pub(crate) case: &'static str,
    /// Of the peak; `None` for a burst.
    pub(crate) factor: Option<u32>,
    /// How long the server was stopped.
    pub(crate) stopped_s: u32,
    pub(crate) peak: Peak,
    /// The best goodput of this store under a smaller load, in this run.
    pub(crate) best: Option<f64>,
    pub(crate) measured: Measured,
    pub(crate) audit: Audit,
}

/// A goal and how far it was reached.
#[derive(Clone, Debug, Serialize)]
struct Goal {
    name: &'static str,
    /// `None`: there was nothing to measure.
    figure: Option<f64>,
    limit: f64,
    met: bool,
}

impl Goal {
    fn at_most(name: &'static str, figure: Option<f64>, limit: f64) -> Self {
        Self {
            name,
            figure: figure.map(rounded),
            limit,
            met: figure.is_none_or(|figure| figure <= limit),
        }
    }
}

impl Row {
    /// Calls answered `Ok` a second while they were offered and the server ran.
    pub(crate) fn goodput(&self) -> f64 {
        let time = self.measured.lasted_s - f64::from(self.stopped_s);
        self.measured.admitted_in_time as f64 / time
    }

    fn ratio(&self) -> f64 {
        self.goodput() / self.peak.per_second
    }

    /// Without a smaller load, to the peak.
    fn ratio_to_best(&self) -> f64 {
        self.goodput() / self.best.unwrap_or(self.peak.per_second)
    }

    fn goals(&self) -> Vec<Goal> {
        let (measured, audit) = (&self.measured, &self.audit);
        let p99 = |latency: Option<Latency>| latency.map(|latency| latency.p99);
        let mut goals = vec![
            Goal::at_most("lost", Some(audit.lost as f64), 0.0),
            Goal::at_most("admitted_p99_ms", p99(measured.admitted_ms), ADMITTED_MS),
            Goal::at_most("refused_p99_ms", p99(measured.refused_ms), REFUSED_MS),
            Goal {
                // Where it does not recover there is no figure.
                met: measured.recovery_s.is_some_and(|time| time <= RECOVERY_S),
                ..Goal::at_most("recovery_s", measured.recovery_s, RECOVERY_S)
            },
            // It may report that answers are not stored. It may not conceal that they are not.
            Goal::at_most(
                "lost_and_not_said_by_shutdown",
                Some(audit.lost.saturating_sub(measured.unstored) as f64),
                0.0,
            ),
        ];
        if self.factor.is_some() {
            let ratio = self.ratio_to_best();
            goals.push(Goal {
                name: "goodput_to_best",
                figure: Some(rounded(ratio)),
                limit: GOODPUT,
                met: ratio >= GOODPUT,
            });
        }
        goals
    }

    /// The violations of the guarantees, which hold under any load, a line each.
    pub(crate) fn violations(&self) -> Vec<String> {
        let (measured, audit) = (&self.measured, &self.audit);
        let counts = [
            (audit.lost, "acknowledged answers lost"),
            (
                audit.differing,
                "of them answered differently without a run",
            ),
            (
                audit.unanswered,
                "acknowledged answers that the store gives no reply for",
            ),
            (measured.of_no_run, "acknowledged answers of no run"),
            (
                measured.ran_though_refused,
                "bodies of calls refused as StoreUnavailable",
            ),
            (measured.without_reply, "callers without a reply"),
        ];
        let name = self.name();
        let violated = counts.into_iter().filter(|(count, _)| *count > 0);
        violated
            .map(|(count, what)| format!("VIOLATED: {name}: {what}: {count}"))
            .collect()
    }

    fn name(&self) -> String {
        let factor = self
            .factor
            .map(|factor| format!(", {factor} times the peak"));
        format!(
            "{}, {}{}",
            self.store,
            self.case,
            factor.unwrap_or_default()
        )
    }

    fn json(&self) -> Value {
        let head = json!({
            "store": self.store,
            "case": self.case,
            "factor": self.factor,
            "stopped_s": self.stopped_s,
            "peak_per_s": rounded(self.peak.per_second),
            "peak_callers": self.peak.callers,
            "goodput_per_s": rounded(self.goodput()),
            "goodput_to_best": rounded(self.ratio_to_best()),
            "goodput_to_peak": self.factor.map(|_| rounded(self.ratio())),
            "goals": self.goals(),
        });
        let parts = [
            serde_json::to_value(&self.measured).unwrap(),
            serde_json::to_value(&self.audit).unwrap(),
        ];
        let mut row = head;
        for part in parts {
            let (Value::Object(row), Value::Object(part)) = (&mut row, part) else {
                unreachable!("they are structs");
            };
            // The audit of the process under load is that of the row.
            row.extend(part.into_iter().filter(|(name, _)| name != "audit"));
        }
        row
    }
}

/// Three places: the machine is noisy.
fn rounded(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}

/// Prints rows as they come.
pub(crate) fn print(row: &Row, json: bool, is_first: bool) {
    let mut out = stdout().lock();
    if json {
        writeln!(out, "{}", row.json()).unwrap();
    } else {
        table(&mut out, row, is_first);
    }
    out.flush().unwrap();
}

fn table(out: &mut impl std::io::Write, row: &Row, is_first: bool) {
    if is_first {
        writeln!(
            out,
            "{:<15}{:<8}{:>3}{:>8}{:>9}{:>9}{:>9}{:>6}{:>8}{:>8}{:>7} {:>21} {:>21} {:>16}{:>9}  {:>8}  shutdown",
            "store", "case", "x", "peak/s", "offered", "not off.", "admitted", "ratio", "shed",
            "unavail", "other", "admitted p50/p99/max", "refused p50/p99/max", "MB begin/peak", "recovery",
            "lost"
        )
        .unwrap();
    }
    let (measured, audit) = (&row.measured, &row.audit);
    let latency = |latency: Option<Latency>| {
        latency.map_or_else(String::new, |Latency { p50, p99, max }| {
            format!("{p50:.0}/{p99:.0}/{max:.0} ms")
        })
    };
    let ratio = row.factor.map(|_| format!("{:.2}", row.ratio()));
    let recovery = measured.recovery_s.map(|time| format!("{time:.1} s"));
    writeln!(
        out,
        "{:<15}{:<8}{:>3}{:>8.0}{:>9}{:>9}{:>9}{:>6}{:>8}{:>8}{:>7} {:>21} {:>21} {:>16}{:>9}  {:>8}  {} in {:.1} s",
        row.store,
        row.case,
        row.factor.map(|factor| factor.to_string()).unwrap_or_default(),
        row.peak.per_second,
        measured.offered,
        measured.not_offered,
        measured.admitted,
        ratio.unwrap_or_default(),
        measured.refused_shed,
        measured.refused_unavailable,
        measured.refused_other,
        latency(measured.admitted_ms),
        latency(measured.refused_ms),
        format!("{:.0}/{:.0}", measured.rss_begin_mb, measured.rss_peak_mb),
        recovery.unwrap_or_else(|| "none".to_owned()),
        format!("{}/{}", audit.lost, audit.audited),
        measured.shutdown,
        measured.shutdown_s,
    )
    .unwrap();
    for goal in row.goals().iter().filter(|goal| !goal.met) {
        let figure = goal
            .figure
            .map_or_else(|| "none".to_owned(), |figure| figure.to_string());
        writeln!(
            out,
            "    missed: {} {figure}, the goal is {}",
            goal.name, goal.limit
        )
        .unwrap();
    }
}
