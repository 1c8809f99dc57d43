//! What happens in a sequence. Numbers here are small; a subject says what they are in time.

use std::sync::LazyLock;

use idem_runtime::store::OutcomeKind;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;

pub(crate) const KEYS: usize = 2;
pub(crate) const OWNERS: usize = 4;

/// What was asked: one of two requests, or nobody wants to know.
pub(crate) type Print = Option<u8>;

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Claim {
        key: usize,
        owner: usize,
        print: Print,
        /// In steps, as are all times.
        lease: u64,
        retain: u64,
        max_attempts: Option<u16>,
    },
    Complete {
        key: usize,
        owner: usize,
        print: Print,
        ttl: u64,
        outcome: OutcomeKind,
        schema: u32,
        body: usize,
    },
    Release {
        key: usize,
        owner: usize,
        count: bool,
    },
    Renew {
        key: usize,
        owner: usize,
    },
    Read {
        key: usize,
    },
    Advance {
        steps: u64,
    },
    /// Moves time to the end of this record's lease, if it is claimed.
    Lapse {
        key: usize,
    },
    /// Moves time to the end of this record's life.
    Expire {
        key: usize,
    },
}

impl Operation {
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        let key = || prop_oneof![3 => Just(0), 1 => Just(1)];
        let owner = || prop_oneof![3 => Just(0), 3 => Just(1), 1 => Just(2), 1 => Just(3)];
        let print = || prop_oneof![6 => Just(Some(1)), 1 => Just(Some(2)), 1 => Just(None)];
        let lease = select(vec![1, 2, 3, 6]);
        let retain = select(vec![12, 13, 20, 40]);
        let max_attempts = select(vec![None, Some(1), Some(2), Some(3), Some(5)]);
        let claim = (key(), owner(), print(), lease, retain, max_attempts).prop_map(
            |(key, owner, print, lease, retain, max_attempts)| Self::Claim {
                key,
                owner,
                print,
                lease,
                retain,
                max_attempts,
            },
        );
        let outcome = select(vec![
            OutcomeKind::Value,
            OutcomeKind::Error,
            OutcomeKind::Unknown,
            OutcomeKind::Tombstone,
        ]);
        let ttl = select(vec![1, 4, 30]);
        let body = select(vec![0, 1, 100, 8_191, 8_192, 8_193, 20_000]);
        let complete = (key(), owner(), print(), ttl, outcome, any::<u32>(), body).prop_map(
            |(key, owner, print, ttl, outcome, schema, body)| Self::Complete {
                key,
                owner,
                print,
                ttl,
                outcome,
                schema,
                body,
            },
        );
        let release = (key(), owner(), any::<bool>())
            .prop_map(|(key, owner, count)| Self::Release { key, owner, count });
        let renew = (key(), owner()).prop_map(|(key, owner)| Self::Renew { key, owner });
        prop_oneof![
            8 => claim,
            3 => complete,
            3 => release,
            3 => renew,
            1 => key().prop_map(|key| Self::Read { key }),
            3 => (1..8_u64).prop_map(|steps| Self::Advance { steps }),
            2 => key().prop_map(|key| Self::Lapse { key }),
            1 => key().prop_map(|key| Self::Expire { key }),
        ]
    }
}

/// An answer of so many bytes.
pub(crate) fn body(bytes: usize) -> &'static [u8] {
    static LONGEST: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..=u8::MAX).cycle().step_by(7).take(20_000).collect());
    &LONGEST[..bytes]
}
