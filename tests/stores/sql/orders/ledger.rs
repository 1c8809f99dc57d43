//! What the workers have answered, and which orders they are to take next.

use std::collections::{BTreeMap, BTreeSet};

use idem_tests::orders::order::ORDERS;
use idem_tests::seeded::Seeded;

/// Orders that have no answer yet, in the hands of a worker; others have some of them as well.
const FRESH: usize = 9;
/// Orders of a batch that have one.
const REPEATED: u64 = 3;

/// Answers, as the workers told them.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Of each answer, whether one told it whose own body and commit it came from.
    answers: BTreeMap<u64, BTreeMap<String, bool>>,
    /// What is answered once nothing is killed any more.
    last: BTreeMap<u64, BTreeSet<String>>,
    /// The first number that no worker has been given.
    handed_out: u64,
    told: usize,
}

impl Ledger {
    /// Numbers for a worker to take, in any order.
    pub(crate) fn batch(&mut self, seeded: &mut Seeded) -> Vec<u64> {
        let fresh = (0..ORDERS).filter(|number| !self.answers.contains_key(number));
        let mut batch: Vec<_> = fresh.take(FRESH).collect();
        assert!(
            !batch.is_empty(),
            "all {ORDERS} orders are answered: there are more kills than work"
        );
        let end = batch.last().map_or(0, |last| last + 1);
        self.handed_out = self.handed_out.max(end);
        batch.extend((0..REPEATED).map(|_| seeded.below(self.handed_out)));
        shuffle(&mut batch, seeded);
        batch
    }

    /// Everything that any worker was given, in any order.
    pub(crate) fn all(&self, seeded: &mut Seeded) -> Vec<u64> {
        let mut all: Vec<_> = (0..self.handed_out).collect();
        shuffle(&mut all, seeded);
        all
    }

    /// An answer, and whether it comes from the body and the commit of the call that tells it.
    pub(crate) fn answered(&mut self, number: u64, ran: bool, answer: &str) {
        self.told += 1;
        let answers = self.answers.entry(number).or_default();
        *answers.entry(answer.to_owned()).or_default() |= ran;
        self.last
            .entry(number)
            .or_default()
            .insert(answer.to_owned());
    }

    /// From here on nothing is killed.
    pub(crate) fn close(&mut self) {
        self.last.clear();
    }

    /// Each order with all the answers that were given since nothing was killed any more.
    pub(crate) fn last(&self) -> &BTreeMap<u64, BTreeSet<String>> {
        &self.last
    }

    /// Answers that were told before, and are not the last: `true` where a body's own commit had been
    /// acknowledged.
    pub(crate) fn lost(&self) -> Vec<(u64, &str, bool)> {
        let all = self.answers.iter().flat_map(|(number, answers)| {
            let last = self.last.get(number);
            let gone = move |answer: &str| last.is_none_or(|last| !last.contains(answer));
            let answers = answers.iter();
            let answers = answers.map(|(answer, ran)| (*number, answer.as_str(), *ran));
            answers.filter(move |(_, answer, _)| gone(answer))
        });
        all.collect()
    }

    /// How many orders there are, and how many answers were told.
    pub(crate) fn size(&self) -> (u64, usize) {
        (self.handed_out, self.told)
    }
}

fn shuffle(numbers: &mut [u64], seeded: &mut Seeded) {
    for at in (1..numbers.len()).rev() {
        let other = seeded.below(at as u64 + 1);
        numbers.swap(at, usize::try_from(other).expect("a place among them"));
    }
}
