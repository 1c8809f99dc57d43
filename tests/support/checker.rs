//! Whether a history of calls is allowed: by the journals of their processes and by the log of the faults.
//!
//! An engine's events for its observer do not count. The checker reads nothing and writes nothing.

mod answers;
mod family;
mod faults;
mod history;
pub mod journal;
mod recorded;
mod records;
mod starts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use self::family::Family;
pub use self::faults::{Fault, Faults, LAPSE, SEATS, Target};
use self::history::Settling;
pub use self::history::{Call, End, History, Key, Start};

/// The longest duration of a resolution after an operator's unknown result.
const REPEATED: u64 = 30_000_000;
/// The delay that a busy machine may add to a time.
const SLACK: u64 = 400_000;

#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The lease of all calls, in microseconds.
    pub lease: u64,
    /// Faults that may forget acknowledged writes.
    pub forgets: &'static [&'static str],
}

impl Promise {
    /// The shortest outage in which a lease may lapse. It is renewed after a third, and so has two left.
    fn lapse(self) -> u64 {
        self.lease / 2
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A later caller gets something else than an acknowledged answer.
    Lost,
    /// Callers have different answers.
    Differing,
    /// A caller gets an answer that a reset took back. Before its call began, another caller received the new one.
    Stale,
    /// A body starts though the answer was acknowledged.
    StartedAfterAnswer,
    /// A body starts a second time without an explanation.
    Unexplained,
    /// `max_attempts = 1`, and a second start.
    Twice,
    Fence,
    /// A caller gets the answer to another request.
    Payload,
    /// A body starts though its outcome is unknown.
    StartedAfterUnknown,
    /// A call of an orderly process has no end, or work remains.
    NeverEnded,
    /// A success received after its lease had lapsed unconfirmed, beside another one.
    LateSuccess,
    /// A record has a wrong end of an attempt, or omits one.
    Recorded,
    /// The ledger has another row than the answer, or more of them.
    Ledger,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub what: What,
    pub key: String,
    pub why: String,
}

/// The findings of a history.
#[derive(Debug, Default)]
pub struct Findings {
    pub violations: Vec<Violation>,
    /// Ends of attempts that records remember, and agree with the journals.
    pub recorded: BTreeMap<String, usize>,
    pub second_starts: BTreeMap<String, usize>,
    pub starts: usize,
    /// Answers received within their lease while the store was unreachable. They were not stored.
    pub unstored: usize,
    /// Writes that an asynchronous failover has forgotten.
    pub forgotten: usize,
    /// The outcomes of the calls, by kind.
    pub told: BTreeMap<String, usize>,
}

/// Whether a caller received an answer without its having been stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unstored {
    No,
    AfterLease,
    /// As the guarantee names it.
    WithinLease,
}

pub fn check(history: &History, faults: &Faults, promise: Promise) -> Findings {
    let mut findings = Findings::default();
    for (name, key) in &history.keys {
        let calls = key.calls.iter();
        let mut starts: Vec<_> = calls
            .filter_map(|call| Some((call, call.start()?)))
            .collect();
        starts.sort_by_key(|(_, start)| start.at);
        let mut checker = Checker {
            name,
            key,
            starts,
            family: Family::of_key(name),
            faults,
            promise,
            findings: &mut findings,
        };
        checker.ends(history);
        checker.answers();
        checker.second_starts();
        checker.unknowns();
        checker.fences();
        checker.payloads();
        checker.recorded();
        checker.ledger();
    }
    let left = history.left.iter().map(|(process, left)| Violation {
        what: What::NeverEnded,
        key: "-".to_owned(),
        why: format!("process {process} ended: {left}"),
    });
    findings.violations.extend(left);
    findings
        .violations
        .sort_by(|a, b| (a.what, &a.key).cmp(&(b.what, &b.key)));
    findings
}

struct Checker<'a, 'f> {
    name: &'a str,
    key: &'a Key,
    /// The calls whose bodies started, in that order.
    starts: Vec<(&'a Call, &'a Start)>,
    family: Family,
    faults: &'a Faults,
    promise: Promise,
    findings: &'f mut Findings,
}

impl Checker<'_, '_> {
    fn found(&mut self, what: What, why: String) {
        self.findings.violations.push(Violation {
            what,
            key: self.name.to_owned(),
            why,
        });
    }

    /// A violation, unless a failover may have forgotten the writes before `to`.
    fn broken(&mut self, what: What, from: u64, to: u64, why: String) {
        if self.faults.any(self.promise.forgets, from, to) {
            self.findings.forgotten += 1;
        } else {
            self.found(what, why);
        }
    }

    /// Whether an operator may have changed the record in this span.
    ///
    /// Also an operator that received an error: a reset whose reply was lost is sent again, and may then meet a record
    /// that others have changed since.
    fn settled(&self, from: u64, to: u64) -> bool {
        self.settlings(from, to).next().is_some()
    }

    fn settlings(&self, from: u64, to: u64) -> impl Iterator<Item = &Settling> {
        // It is sent again and again, and may land late.
        let end = |one: &Settling| one.to.unwrap_or(one.from + REPEATED);
        let touches = move |one: &&Settling| one.from <= to && end(one) >= from;
        self.key.settlings.iter().filter(touches)
    }

    /// Counts the ends of calls. Each call of a process that ended in order has one.
    fn ends(&mut self, history: &History) {
        self.findings.starts += self.starts.len();
        for call in &self.key.calls {
            if let Some((_, told)) = &call.told {
                *self.findings.told.entry(told.to_string()).or_default() += 1;
            } else if history.stopped.contains(&call.process) {
                self.found(What::NeverEnded, format!("{call} has no end"));
            }
        }
    }
}
