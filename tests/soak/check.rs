//! The checker: whether the history of a key is allowed.
//!
//! It decides by the journals and by the log of the nemesis; the events of an engine's observer do not count.
//! It reads nothing and writes nothing.

mod ledger;
mod recorded;
mod records;
mod starts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(crate) use self::ledger::check_ledger;

use crate::faults::{Faults, Outage};
use crate::history::{Call, History, How, Key, Settling, Start, Told};
use crate::mix::Family;

/// How long a resolution may go on after its operator received an unknown result.
const REPEATED: u64 = 30_000_000;
/// The delay that a busy machine may add to a time.
const SLACK: u64 = 400_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// The lease of all calls, in microseconds.
    pub(crate) lease: u64,
    /// Faults that may forget acknowledged writes.
    pub(crate) forgets: &'static [&'static str],
}

impl Promise {
    /// The shortest outage in which a lease may lapse. It is renewed after a third, and so has two left.
    fn lapse(self) -> u64 {
        self.lease / 2
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum What {
    /// A later caller gets something else than an acknowledged answer.
    Lost,
    /// Callers have different answers.
    Differing,
    /// A caller gets an answer that a reset took back, though a caller received the new one before the call
    /// began.
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
    /// A call of a process that ended in order has no end.
    NeverEnded,
    /// A success that its caller received after its lease had lapsed unconfirmed, and another one beside it.
    LateSuccess,
    /// A record remembers another end of an attempt than it had, or leaves one out.
    Recorded,
    /// The ledger has another row than the answer, or more of them.
    Ledger,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) what: What,
    pub(crate) key: String,
    pub(crate) why: String,
}

/// The findings of a store's history.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) violations: Vec<Violation>,
    /// Ends of attempts that records remember, and agree with the journals.
    pub(crate) recorded: BTreeMap<String, usize>,
    pub(crate) second_starts: BTreeMap<String, usize>,
    pub(crate) starts: usize,
    pub(crate) answered: usize,
    /// Answers that callers received within their lease, while the store was out of reach, and were not stored.
    pub(crate) unstored: usize,
    /// Writes that an asynchronous failover has forgotten.
    pub(crate) forgotten: usize,
    /// The outcomes of the calls, by kind.
    pub(crate) told: BTreeMap<String, usize>,
}

/// Whether a caller received an answer without its having been stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unstored {
    No,
    AfterLease,
    /// As the guarantee names it.
    WithinLease,
}

#[derive(Debug)]
struct Answer<'a> {
    text: &'a str,
    /// When the first caller received it.
    told: u64,
    /// The first call that received it, unless that was an operator.
    teller: Option<&'a Call>,
    /// The first call that received it is the one whose body gave it.
    own: bool,
    /// When another caller received it, and it was surely stored.
    stored: Option<u64>,
}

impl Answer<'_> {
    /// Whether it may still have been unstored at this time.
    fn at(&self, time: u64, unstored: Unstored) -> Unstored {
        match self.stored {
            Some(stored) if stored <= time => Unstored::No,
            _ => unstored,
        }
    }
}

pub(crate) fn check(history: &History, faults: &Faults, promise: Promise) -> Findings {
    let mut findings = Findings::default();
    for (name, key) in &history.keys {
        let mut checker = Checker {
            name,
            key,
            family: Family::of_key(name),
            faults,
            promise,
            findings: &mut findings,
        };
        checker.check();
        for call in &key.calls {
            if call.told.is_none() && history.stopped.contains_key(&call.process) {
                let why = format!("call {}/{} has no end", call.process, call.id);
                checker.found(What::NeverEnded, why);
            }
        }
    }
    findings
        .violations
        .sort_by(|a, b| (a.what, &a.key).cmp(&(b.what, &b.key)));
    findings
}

struct Checker<'a, 'f> {
    name: &'a str,
    key: &'a Key,
    family: Family,
    faults: &'a Faults,
    promise: Promise,
    findings: &'f mut Findings,
}

impl<'a> Checker<'a, '_> {
    fn check(&mut self) {
        self.findings.starts += self.key.starts.len();
        for call in &self.key.calls {
            if let Some((_, told)) = &call.told {
                *self.findings.told.entry(word(told).to_owned()).or_default() += 1;
            }
        }
        let answers = self.answers();
        self.findings.answered += usize::from(!answers.is_empty());
        let unstored: Vec<_> = answers.iter().map(|answer| self.unstored(answer)).collect();
        self.differing(&answers, &unstored);
        for (answer, unstored) in answers.iter().zip(&unstored) {
            self.kept(answer, *unstored);
        }
        self.second_starts();
        self.unknowns();
        self.fences();
        self.payloads();
        self.recorded();
    }

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

    /// An answer that another event contradicts.
    fn contradicted(&mut self, what: What, unstored: Unstored, from: u64, to: u64, why: String) {
        match unstored {
            Unstored::No => self.broken(what, from, to, why),
            Unstored::WithinLease => self.findings.unstored += 1,
            Unstored::AfterLease => self.broken(What::LateSuccess, from, to, why),
        }
    }

    /// Each answer, in the order in which callers received them first.
    fn answers(&self) -> Vec<Answer<'a>> {
        let mut answers: Vec<Answer<'a>> = Vec::new();
        let mut add = |text: &'a str, told: u64, teller: Option<&'a Call>, own: bool| {
            let stored = (!own).then_some(told);
            let Some(answer) = answers.iter_mut().find(|answer| answer.text == text) else {
                return answers.push(Answer {
                    text,
                    told,
                    teller,
                    own,
                    stored,
                });
            };
            answer.stored = answer.stored.into_iter().chain(stored).min();
            if told < answer.told {
                (answer.told, answer.teller, answer.own) = (told, teller, own);
            }
        };
        for call in &self.key.calls {
            if let Some((told, Told::Answer(text))) = &call.told {
                add(text, *told, Some(call), self.gave(call, text));
            }
        }
        for settling in &self.key.settlings {
            if let (Some(to), Some(text), false) = (settling.to, &settling.answer, settling.failed)
            {
                add(text, to, None, false);
            }
        }
        answers.sort_by_key(|answer| answer.told);
        answers
    }

    /// Whether the body of this call gave this answer.
    fn gave(&self, call: &Call, text: &str) -> bool {
        let ours = |start: &&Start| (start.process, start.id) == (call.process, call.id);
        let start = self.key.starts.iter().rfind(ours);
        start.is_some_and(
            |start| matches!(&start.end, Some((_, How::Answer(answer))) if **answer == *text),
        )
    }

    /// Whether an operator may have changed the record in this span.
    ///
    /// Also one that received an error: a reset whose reply was lost is sent again, and may then meet a record
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

    /// Whether a caller may have received the answer without its having been stored.
    ///
    /// That takes an outage that begins before the caller receives it. With the last renewal before the outage,
    /// the lease is over one lease after its beginning at the latest.
    fn unstored(&self, answer: &Answer<'_>) -> Unstored {
        // In a transaction the caller receives its answer after its commit.
        let named = answer.own && self.family != Family::Booked;
        let Some(call) = answer.teller.filter(|_| named) else {
            return Unstored::No;
        };
        let (lapse, lease) = (self.promise.lapse(), self.promise.lease);
        let mut outages = (self.faults).outages(call.process, call.begun, answer.told, lapse);
        // An answer that was stored and then forgotten is another exception.
        outages.retain(|outage| !self.promise.forgets.contains(&&*outage.kind));
        let within = |outage: &Outage| {
            let ends = outage.from.max(call.begun) + lease + SLACK;
            answer.told <= ends && answer.told <= outage.to + SLACK
        };
        if outages.is_empty() {
            Unstored::No
        } else if outages.iter().any(within) {
            Unstored::WithinLease
        } else {
            Unstored::AfterLease
        }
    }

    fn differing(&mut self, answers: &[Answer<'a>], unstored: &[Unstored]) {
        let calls = &self.key.calls;
        for (at, later) in answers.iter().enumerate() {
            for (earlier, how) in answers[..at].iter().zip(unstored) {
                // A resolution is not taken back by the same operator.
                let from = earlier.teller.map_or(earlier.told + 1, |call| call.begun);
                // A caller that began before a reset may receive the answer stored then, however late.
                let first = self.called_for(later.text).map(|call| call.begun).min();
                let from = from.min(first.unwrap_or(from));
                // The last caller that got the later one.
                let last = |call: &Call| match &call.told {
                    Some((told, Told::Answer(text))) if **text == *later.text => Some(*told),
                    _ => None,
                };
                let to = calls.iter().filter_map(last).max().unwrap_or(later.told);
                if self.settled(from, to) {
                    continue;
                }
                let why = format!("`{}`, and then `{}`", earlier.text, later.text);
                // An answer that another caller received was stored.
                let [how, other] = [(earlier, *how), (later, unstored[at])]
                    .map(|(answer, how)| answer.at(u64::MAX, how));
                self.contradicted(What::Differing, how.max(other), from, to, why);
            }
        }
        self.stale(answers, unstored);
    }

    /// A call that begins after a caller received another answer gets that one, unless it was taken back again.
    fn stale(&mut self, answers: &[Answer<'a>], unstored: &[Unstored]) {
        if self.key.settlings.is_empty() || answers.len() < 2 {
            return;
        }
        for call in &self.key.calls {
            let Some((told, Told::Answer(text))) = &call.told else {
                continue;
            };
            // Of the answers that the caller could have known, the last received one.
            let known = answers.iter().zip(unstored);
            let Some(first) = answers.iter().find(|answer| answer.text == &**text) else {
                continue;
            };
            let newest = known
                .filter(|(answer, _)| answer.text != &**text)
                .filter(|(answer, _)| self.is_newer(answer, first.told, call.begun))
                .max_by_key(|(answer, _)| answer.told);
            let Some((newest, how)) = newest else {
                continue;
            };
            if !self.settled(newest.told, *told) {
                let why = format!(
                    "call {}/{} got `{text}` again, long after `{}` was told",
                    call.process, call.id, newest.text
                );
                let how = newest.at(call.begun, *how);
                self.contradicted(What::Stale, how, first.told, *told, why);
            }
        }
    }

    /// Whether the answer was the key's at some moment after `from` and before `to`: a call began and received
    /// it between the two, or an operator gave it.
    fn is_newer(&self, answer: &Answer<'_>, from: u64, to: u64) -> bool {
        let within =
            |begun: u64, told: Option<u64>| begun > from && told.is_some_and(|told| told < to);
        let told = |call: &Call| call.told.as_ref().map(|(told, _)| *told);
        let given = |one: &&Settling| one.answer.as_deref() == Some(answer.text) && !one.failed;
        self.called_for(answer.text)
            .any(|call| within(call.begun, told(call)))
            || (self.key.settlings.iter().filter(given)).any(|one| within(one.from, one.to))
    }

    /// The calls that received this answer.
    fn called_for(&self, text: &str) -> impl Iterator<Item = &'a Call> {
        self.key.calls.iter().filter(
            move |call| matches!(&call.told, Some((_, Told::Answer(told))) if **told == *text),
        )
    }

    /// After a caller received an answer, no body starts, and every caller gets it.
    fn kept(&mut self, answer: &Answer<'a>, unstored: Unstored) {
        let from = answer.teller.map_or(answer.told, |call| call.begun);
        let payload = answer.teller.map(|call| call.payload);
        for start in &self.key.starts {
            if start.begun <= answer.told || self.settled(from, start.at) {
                continue;
            }
            let why = format!(
                "call {}/{} starts a body, and `{}` was told {} ms before",
                start.process,
                start.id,
                answer.text,
                (start.begun - answer.told) / 1_000
            );
            let how = answer.at(start.begun, unstored);
            self.contradicted(What::StartedAfterAnswer, how, from, start.at, why);
        }
        for call in &self.key.calls {
            let Some((told, Told::Error(kind))) = &call.told else {
                continue;
            };
            let same = payload.is_none_or(|payload| payload == call.payload);
            // These imply nothing about the record. A follower receives `Running` while its leader has no reply
            // yet.
            let waits = [
                "Running",
                "StoreUnavailable",
                "ShuttingDown",
                "TransactionAborted",
                "CommitUnknown",
                "Unconfirmed",
            ];
            if call.begun <= answer.told
                || !same
                || waits.contains(&&**kind)
                || self.settled(from, *told)
            {
                continue;
            }
            let why = format!(
                "call {}/{} is told {kind}, and `{}` was told before",
                call.process, call.id, answer.text
            );
            let how = answer.at(call.begun, unstored);
            self.contradicted(What::Lost, how, from, *told, why);
        }
    }
}

fn word(told: &Told) -> &str {
    match told {
        Told::Answer(text) if text.starts_with("ok") => "answer",
        Told::Answer(_) => "business error",
        Told::Down => "system error",
        Told::Unknown => "unknown",
        Told::Panic => "panic",
        Told::Gone => "gone",
        Told::Error(kind) => kind,
    }
}
