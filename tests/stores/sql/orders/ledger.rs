//! The answers of the workers, and the orders to give them next.

use std::collections::{BTreeMap, BTreeSet};

use idem_tests::orders::order::{GROUP, ORDERS};
use idem_tests::seeded::Seeded;

/// Unanswered orders of a batch; other workers have some of them as well.
const FRESH: usize = 9;
/// Answered orders of a batch.
const REPEATED: u64 = 3;

/// Answers, as printed by the workers.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Each answer, and whether the call of its own body printed it.
    answers: BTreeMap<u64, BTreeMap<String, bool>>,
    /// Answers since the last kill.
    last: BTreeMap<u64, BTreeSet<String>>,
    /// The first number not given to any worker.
    handed_out: u64,
}

impl Ledger {
    /// Numbers for a worker, in random order.
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

    /// All numbers given to workers, in random order.
    pub(crate) fn all(&self, seeded: &mut Seeded) -> Vec<u64> {
        let mut all: Vec<_> = (0..self.handed_out).collect();
        shuffle(&mut all, seeded);
        all
    }

    /// Adds an answer, and whether it comes from the call's own body.
    pub(crate) fn answered(&mut self, number: u64, ran: bool, answer: &str) {
        let answers = self.answers.entry(number).or_default();
        *answers.entry(answer.to_owned()).or_default() |= ran;
        self.last
            .entry(number)
            .or_default()
            .insert(answer.to_owned());
    }

    /// Called after the last kill. At least one group of orders is given out, which sells its items out.
    pub(crate) fn close(&mut self) {
        self.last.clear();
        self.handed_out = self.handed_out.max(GROUP);
    }

    /// Each order with all its answers since the last kill.
    pub(crate) fn last(&self) -> &BTreeMap<u64, BTreeSet<String>> {
        &self.last
    }

    /// Earlier answers that are not among the last ones: `true` where a body's own commit had been acknowledged.
    pub(crate) fn lost(&self) -> Vec<bool> {
        let all = self.answers.iter().flat_map(|(number, answers)| {
            let last = self.last.get(number);
            let is_gone = move |answer: &String| last.is_none_or(|last| !last.contains(answer));
            answers.iter().filter(move |(answer, _)| is_gone(answer))
        });
        all.map(|(_, ran)| *ran).collect()
    }

    /// Number of orders.
    pub(crate) fn orders(&self) -> u64 {
        self.handed_out
    }
}

fn shuffle(numbers: &mut [u64], seeded: &mut Seeded) {
    for at in (1..numbers.len()).rev() {
        let other = seeded.below(at as u64 + 1);
        numbers.swap(at, usize::try_from(other).expect("a place among them"));
    }
}
