//! Cost of repeats, in money.

use std::collections::BTreeMap;
use std::fmt;

use super::check::Evidence;
use super::ledger::Kind;
use super::money::{Sums, thousands};

/// Effects that happened more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Payments whose card was charged more than once.
    pub payments: u64,
    /// Charges beyond the first.
    pub charges: u64,
    /// Sum of those charges.
    pub charged: Sums,
    /// Refunds that were paid more than once.
    pub refunds: u64,
    /// Sum of those refunds.
    pub refunded: Sums,
    /// Movements of the provider that are not in the books.
    pub unbooked: u64,
    /// Messages that were sent again.
    pub messages: u64,
}

impl Damage {
    /// Counts what happened more than once.
    #[must_use]
    pub fn of(evidence: &Evidence<'_>) -> Self {
        let mut damage = Self::default();
        let mut times: BTreeMap<(bool, &str, &str), u64> = BTreeMap::new();
        for moved in &evidence.movements {
            let payment = moved.kind == Kind::Payment;
            let times = times
                .entry((payment, &moved.merchant, &moved.id))
                .or_default();
            *times += 1;
            if *times == 1 {
                continue;
            }
            let first_repeat = u64::from(*times == 2);
            let amount = moved.amount.cast_signed();
            if payment {
                damage.payments += first_repeat;
                damage.charges += 1;
                damage.charged.add(&moved.currency, amount);
            } else {
                damage.refunds += first_repeat;
                damage.refunded.add(&moved.currency, amount);
            }
        }
        let booked = evidence.books.journal.len() as u64;
        damage.unbooked = (evidence.movements.len() as u64).saturating_sub(booked);
        let different: std::collections::HashSet<_> = evidence.sent.iter().collect();
        damage.messages = (evidence.sent.len() - different.len()) as u64;
        damage
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {:>7} payments charged more than once: {} charges too many, {}",
            thousands(self.payments),
            thousands(self.charges),
            self.charged
        )?;
        writeln!(
            f,
            "  {:>7} refunds paid more than once: {} given away",
            thousands(self.refunds),
            self.refunded
        )?;
        writeln!(
            f,
            "  {:>7} movements at the provider that are not in the books",
            thousands(self.unbooked)
        )?;
        writeln!(f, "  {:>7} messages sent again", thousands(self.messages))
    }
}
