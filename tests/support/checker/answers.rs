//! The answers of a key: every caller gets the same one, and no body starts after it.

use super::faults::Outage;
use super::{Call, Checker, End, Family, SLACK, Settling, Unstored, What};

/// Errors that imply nothing about the record. A follower gets `Running` while its leader has no reply yet.
const IMPLY_NOTHING: [&str; 6] = [
    "Running",
    "StoreUnavailable",
    "ShuttingDown",
    "TransactionAborted",
    "CommitUnknown",
    "Unconfirmed",
];

#[derive(Debug)]
struct Answer<'a> {
    text: &'a str,
    /// When the first caller received it.
    told: u64,
    /// The first call that received it, unless that was an operator.
    teller: Option<&'a Call>,
    /// When another caller received it, and it was surely stored.
    stored: Option<u64>,
    unstored: Unstored,
}

impl Answer<'_> {
    /// Whether it may still have been unstored at this time.
    fn at(&self, time: u64) -> Unstored {
        match self.stored {
            Some(stored) if stored <= time => Unstored::No,
            _ => self.unstored,
        }
    }

    /// When the call began that received it first.
    fn begun(&self) -> u64 {
        self.teller.map_or(self.told, |call| call.begun)
    }
}

impl<'a> Checker<'a, '_> {
    pub(super) fn answers(&mut self) {
        let answers = self.told();
        self.differing(&answers);
        self.stale(&answers);
        for answer in &answers {
            self.kept(answer);
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
    fn told(&self) -> Vec<Answer<'a>> {
        let mut answers: Vec<Answer<'a>> = Vec::new();
        let mut add = |text: &'a str, told: u64, teller: Option<&'a Call>| {
            let own = teller.is_some_and(|call| call.gave(text));
            let stored = (!own).then_some(told);
            let Some(answer) = answers.iter_mut().find(|answer| answer.text == text) else {
                return answers.push(Answer {
                    text,
                    told,
                    teller,
                    stored,
                    unstored: Unstored::No,
                });
            };
            answer.stored = answer.stored.into_iter().chain(stored).min();
            if told < answer.told {
                (answer.told, answer.teller) = (told, teller);
            }
        };
        for call in &self.key.calls {
            if let Some((told, text)) = call.answer() {
                add(text, told, Some(call));
            }
        }
        for settling in &self.key.settlings {
            if let (Some(to), Some(text), false) = (settling.to, &settling.answer, settling.failed)
            {
                add(text, to, None);
            }
        }
        answers.sort_by_key(|answer| answer.told);
        for answer in &mut answers {
            answer.unstored = self.unstored(answer);
        }
        answers
    }

    /// Whether a caller may have received an answer that is not stored.
    ///
    /// That takes an outage that begins before the caller receives it. With the last renewal before the outage,
    /// the lease is over one lease after its beginning at the latest.
    fn unstored(&self, answer: &Answer<'_>) -> Unstored {
        // In a transaction the caller receives its answer after its commit.
        let own = |call: &&Call| call.gave(answer.text) && self.family != Family::Booked;
        let Some(call) = answer.teller.filter(own) else {
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

    fn differing(&mut self, answers: &[Answer<'a>]) {
        for (at, later) in answers.iter().enumerate() {
            for earlier in &answers[..at] {
                // A resolution is not taken back by the same operator.
                let from = earlier.teller.map_or(earlier.told + 1, |call| call.begun);
                // A caller that began before a reset may receive the answer stored then, however late.
                let first = self.called_for(later.text).map(|call| call.begun).min();
                let from = from.min(first.unwrap_or(from));
                // The last caller that got the later one.
                let last = self.called_for(later.text).filter_map(Call::answer);
                let to = last.map(|(told, _)| told).max().unwrap_or(later.told);
                if self.settled(from, to) {
                    continue;
                }
                let why = format!("`{}`, and then `{}`", earlier.text, later.text);
                // An answer that another caller received was stored.
                let unstored = earlier.at(u64::MAX).max(later.at(u64::MAX));
                self.contradicted(What::Differing, unstored, from, to, why);
            }
        }
    }

    /// A call after another caller's answer gets that, unless taken back.
    fn stale(&mut self, answers: &[Answer<'a>]) {
        if self.key.settlings.is_empty() {
            return;
        }
        for call in &self.key.calls {
            let Some((told, text)) = call.answer() else {
                continue;
            };
            let Some(first) = answers.iter().find(|answer| answer.text == text) else {
                continue;
            };
            // Of the answers that the caller could have known, the last received one.
            let newest = answers
                .iter()
                .filter(|answer| answer.text != text)
                .filter(|answer| self.is_newer(answer, first.told, call.begun))
                .max_by_key(|answer| answer.told);
            let Some(newest) = newest else {
                continue;
            };
            if !self.settled(newest.told, told) {
                let newer = newest.text;
                let why = format!("{call} got `{text}` again, long after `{newer}` was returned");
                let unstored = newest.at(call.begun);
                self.contradicted(What::Stale, unstored, first.told, told, why);
            }
        }
    }

    /// Whether the key had the answer at some moment of the span: a call began and received it between the two, or an
    /// operator gave it.
    fn is_newer(&self, answer: &Answer<'_>, from: u64, to: u64) -> bool {
        let within =
            |begun: u64, told: Option<u64>| begun > from && told.is_some_and(|told| told < to);
        let given = |one: &&Settling| one.answer.as_deref() == Some(answer.text) && !one.failed;
        let told = |call: &Call| call.answer().map(|(told, _)| told);
        self.called_for(answer.text)
            .any(|call| within(call.begun, told(call)))
            || (self.key.settlings.iter().filter(given)).any(|one| within(one.from, one.to))
    }

    /// The calls that received this answer.
    fn called_for(&self, text: &str) -> impl Iterator<Item = &'a Call> {
        let got = move |call: &&Call| call.answer().is_some_and(|(_, told)| told == text);
        self.key.calls.iter().filter(got)
    }

    /// After a caller received an answer, no body starts. Every caller gets it.
    fn kept(&mut self, answer: &Answer<'a>) {
        let from = answer.begun();
        let payload = answer.teller.map(|call| call.payload);
        for (call, start) in self.starts.clone() {
            if call.begun > answer.told && !self.settled(from, start.at) {
                let (text, after) = (answer.text, (call.begun - answer.told) / 1_000);
                let why =
                    format!("{call} starts a body, and `{text}` was returned {after} ms before");
                let unstored = answer.at(call.begun);
                self.contradicted(What::StartedAfterAnswer, unstored, from, start.at, why);
            }
        }
        for call in &self.key.calls {
            let Some((told, End::Error(kind))) = &call.told else {
                continue;
            };
            let same = payload.is_none_or(|payload| payload == call.payload);
            if call.begun > answer.told
                && same
                && !IMPLY_NOTHING.contains(&&**kind)
                && !self.settled(from, *told)
            {
                let why = format!(
                    "{call} returns {kind}, and `{}` was returned before",
                    answer.text
                );
                let unstored = answer.at(call.begun);
                self.contradicted(What::Lost, unstored, from, *told, why);
            }
        }
    }
}
