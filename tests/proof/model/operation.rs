//! The operations of a sequence. Numbers are small; a subject maps them to durations.

use std::sync::LazyLock;

use idem_runtime::store::{OutcomeKind, Remains};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;

pub(crate) const KEYS: usize = 2;
pub(crate) const OWNERS: usize = 4;

/// The resolving owners: numbered after those of claims.
pub(crate) const RESOLVERS: usize = 2;

/// The record that a resolution names as the one it saw.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    /// The stored one.
    There,
    /// The claim that this owner was granted last.
    HeldBy(usize),
    /// The stored one, with one attempt more.
    MoreAttempts,
}

/// The fingerprint of one of two requests, or none.
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
        /// Whether the owner has a reconcile hook.
        reconciles: bool,
        /// Whether the owner requests the remaining life of an answer.
        dated: bool,
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
        remains: Remains,
    },
    Renew {
        key: usize,
        owner: usize,
    },
    /// The owner adds to its journal, and sends it.
    Append {
        key: usize,
        owner: usize,
        adds: usize,
        /// Whether an earlier journal of it arrives, and not this one.
        late: bool,
        /// Whether it leaves out the bytes that the store has confirmed.
        rest: bool,
    },
    Resolve {
        key: usize,
        resolver: usize,
        seen: Seen,
        ttl: u64,
        /// The answer that is stored; none resets the key.
        outcome: Option<OutcomeKind>,
        /// Whether a reset keeps the steps that it saw.
        keeps: bool,
        /// Whether its fence is ahead of the record's.
        ahead: bool,
        print: Print,
        body: usize,
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
        let wants = (any::<bool>(), any::<bool>());
        let request = (print(), lease, retain, max_attempts, wants);
        let claim = (key(), owner(), request).prop_map(
            |(key, owner, (print, lease, retain, max_attempts, (reconciles, dated)))| Self::Claim {
                key,
                owner,
                print,
                lease,
                retain,
                max_attempts,
                reconciles,
                dated,
            },
        );
        let outcome = || {
            prop_oneof![
                2 => Just(OutcomeKind::Unknown),
                1 => Just(OutcomeKind::Value),
                1 => Just(OutcomeKind::Error),
                1 => Just(OutcomeKind::Tombstone),
            ]
        };
        let ttl = || select(vec![1, 4, 30]);
        let body = || select(vec![0, 1, 100, 8_191, 8_192, 8_193, 20_000]);
        // The cause of an unknown outcome left by an unfinished reconcile, and any other word.
        let schema = prop_oneof![1 => Just(4), 2 => any::<u32>()];
        let complete = (key(), owner(), print(), ttl(), outcome(), schema, body()).prop_map(
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
        let remains = prop_oneof![
            Just(Remains::Nothing),
            Just(Remains::Request),
            Just(Remains::Attempt),
        ];
        let release = (key(), owner(), remains).prop_map(|(key, owner, remains)| Self::Release {
            key,
            owner,
            remains,
        });
        let renew = (key(), owner()).prop_map(|(key, owner)| Self::Renew { key, owner });
        // Some journals are longer than a script reads of an answer.
        let adds = select(vec![0, 1, 3, 50, 8_190, 20_000]);
        let append = (key(), owner(), adds, any::<bool>(), any::<bool>()).prop_map(
            |(key, owner, adds, late, rest)| Self::Append {
                key,
                owner,
                adds,
                late,
                rest,
            },
        );
        let seen = prop_oneof![
            4 => Just(Seen::There),
            1 => owner().prop_map(Seen::HeldBy),
            1 => Just(Seen::MoreAttempts),
        ];
        let end = (
            proptest::option::of(outcome()),
            any::<bool>(),
            print(),
            body(),
            any::<bool>(),
        );
        let resolve = (key(), OWNERS..OWNERS + RESOLVERS, seen, ttl(), end).prop_map(
            |(key, resolver, seen, ttl, (outcome, ahead, print, body, keeps))| Self::Resolve {
                key,
                resolver,
                seen,
                ttl,
                outcome,
                keeps,
                ahead,
                print,
                body,
            },
        );
        prop_oneof![
            9 => claim,
            3 => complete,
            3 => release,
            3 => renew,
            6 => append,
            2 => resolve,
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
