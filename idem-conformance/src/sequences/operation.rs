//! The operations of a sequence, as bytes that choose from tables: zero is the simplest choice.

use std::ops::Range;

/// The choices of one operation.
pub(super) type Operation = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Claim,
    Complete,
    Release,
    Renew,
    Append,
    Resolve,
    /// An earlier call arrives again, or late.
    Again,
    Read,
    Poll,
    AtHand,
    List,
    Watch,
    Listen,
    Plant,
    Advance,
    /// Time moves to the end of this record's lease, or just before.
    Lapse,
    /// Time moves to the end of this record's life, or just before.
    Expire,
}

use Kind::{
    Advance, Again, Append, AtHand, Claim, Complete, Expire, Lapse, List, Listen, Plant, Poll,
    Read, Release, Renew, Resolve, Watch,
};

/// The kinds of operations of sequences about one subject. Frequent ones are repeated.
pub(super) type Theme = &'static [Kind];

pub(super) const THEMES: [(&str, Theme); 4] = [
    ("claims", CLAIMS),
    ("journals", JOURNALS),
    ("outcomes", OUTCOMES),
    ("notifications", NEWS),
];

const CLAIMS: Theme = &[
    Claim, Claim, Claim, Claim, Claim, Complete, Complete, Release, Release, Renew, Renew, Again,
    Again, Lapse, Lapse, Expire, Advance, Read, Poll, AtHand, Plant, List,
];
const JOURNALS: Theme = &[
    Claim, Claim, Claim, Append, Append, Append, Append, Complete, Release, Release, Resolve,
    Again, Again, Renew, Lapse, Lapse, Expire, Plant, Read,
];
const OUTCOMES: Theme = &[
    Claim, Claim, Claim, Claim, Claim, Complete, Complete, Complete, Resolve, Resolve, Release,
    Release, Again, Lapse, Lapse, Expire, AtHand, List, Renew, Plant, Append,
];
const NEWS: Theme = &[
    Claim, Claim, Claim, Complete, Complete, Release, Resolve, Resolve, Watch, Watch, Poll, Listen,
    Lapse, Lapse, AtHand, Append, List, Plant, Again,
];

/// Splitmix64: a seed gives the same sequence everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A sequence of up to 24 operations.
    pub(super) fn sequence(&mut self) -> Vec<Operation> {
        let length = 4 + self.next() % 21;
        let operation = |random: &mut Self| {
            let (one, two) = (random.next().to_be_bytes(), random.next().to_be_bytes());
            std::array::from_fn(|n| if n < 8 { one[n] } else { two[n - 8] })
        };
        (0..length).map(|_| operation(self)).collect()
    }
}

/// Reads the choices of an operation, and remembers the choices read.
pub(super) struct Choices {
    all: Operation,
    counted: Operation,
    next: usize,
}

impl Choices {
    pub(super) fn new(all: Operation) -> Self {
        let counted = Operation::default();
        Self {
            all,
            counted,
            next: 0,
        }
    }

    pub(super) fn of<T: Copy>(&mut self, table: &[T]) -> T {
        let choice = usize::from(self.all[self.next]) % table.len();
        self.counted[self.next] = u8::try_from(choice).expect("tables are short");
        self.next += 1;
        table[choice]
    }

    /// The same choices, as the smallest numbers that make them.
    pub(super) fn counted(self) -> Operation {
        self.counted
    }
}

/// The distance of the call that an `Again` repeats, less one.
const BACK: usize = 2;

/// The operation that an `Again` repeats.
fn repeated(theme: Theme, sequence: &[Operation], n: usize) -> Option<usize> {
    let is_again = theme[usize::from(sequence[n][0])] == Again;
    n.checked_sub(usize::from(sequence[n][BACK]) + 1)
        .filter(|_| is_again)
}

/// A sequence without these operations: an `Again` behind them repeats the same call as before, if that is left.
fn without(theme: Theme, sequence: &[Operation], gone: Range<usize>) -> Vec<Operation> {
    let mut fewer = sequence.to_vec();
    for (n, operation) in fewer.iter_mut().enumerate().skip(gone.end) {
        let mut call = repeated(theme, sequence, n);
        while let Some(again) = call.filter(|call| gone.contains(call)) {
            call = repeated(theme, sequence, again);
        }
        if let Some(call) = call {
            let back = n - call - if call < gone.start { gone.len() } else { 0 };
            operation[BACK] = u8::try_from(back - 1).unwrap_or(u8::MAX);
        }
    }
    fewer.drain(gone);
    fewer
}

/// The simpler sequences to try next: without some of the operations, and with simpler choices.
///
/// Each operation of the sequence makes a call, and its choices are counted.
pub(super) fn simpler(theme: Theme, sequence: &[Operation]) -> Vec<Vec<Operation>> {
    let mut all = Vec::new();
    let mut width = sequence.len().div_ceil(2);
    while width > 0 {
        for start in (0..sequence.len()).step_by(width) {
            let end = (start + width).min(sequence.len());
            all.push(without(theme, sequence, start..end));
        }
        width /= 2;
    }
    for (n, operation) in sequence.iter().enumerate() {
        let mut simpler = |operation| {
            let mut simpler = sequence.to_vec();
            simpler[n] = operation;
            all.push(simpler);
        };
        let first = repeated(theme, sequence, n).map(|first| sequence[first]);
        first.map(&mut simpler);
        for (m, choice) in operation.iter().enumerate() {
            // Nothing becomes an `Again`, or the search would go round in circles.
            let is_less = |less: &u8| m > 0 || theme[usize::from(*less)] != Again;
            for less in (0..*choice).filter(is_less) {
                let mut operation = *operation;
                operation[m] = less;
                simpler(operation);
            }
        }
    }
    all
}
