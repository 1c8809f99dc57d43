//! The verdict on a run.

use std::time::Instant;

use crate::journal::{Span, Verdict};
use crate::load::Shared;
use crate::plan::calls;

/// A fault, from the servers' view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) at: Instant,
    /// When the servers could serve the keys again.
    pub(crate) served: Instant,
    /// When no server acknowledged writes any more but the new primary.
    pub(crate) settled: Instant,
}

/// The permitted damage of a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// None: no key has two answers, and no body runs again without need.
    Kept,
    /// A lost claim may run again; all answers of a key are equal.
    Equal,
    /// Servers may only lose writes acknowledged during the failover. Keys end and calls continue
    /// all the same.
    Forgetful,
}

/// Judges a run with one fault on one shard.
pub(crate) fn judge(name: &str, promise: Promise, fault: Fault, shared: &Shared, hit: usize) {
    let forgets = (promise != Promise::Kept).then_some(fault.at..fault.settled);
    conclude(name, promise, shared, forgets);
    for (key, called) in shared.journal.forgotten() {
        assert!(
            called.start < fault.settled && called.end > fault.at,
            "{name}: key {key} had another answer: {called:?}, {fault:?}"
        );
    }
    let refused = shared.journal.refused();
    let elsewhere = refused.iter().filter(|call| call.shard != hit);
    let elsewhere = elsewhere.filter(|call| call.began < fault.served && call.ended > fault.at);
    assert_eq!(elsewhere.count(), 0, "{name}: calls on other shards");
}

/// Judges answers and runs of bodies. Claims may be forgotten in this span.
pub(crate) fn conclude(name: &str, promise: Promise, shared: &Shared, forgets: Span) {
    let Verdict {
        calls: made,
        differing,
        wrong,
    } = shared.journal.verdict(forgets);
    assert!(made >= calls(), "{name}: {made} calls");
    assert_eq!(wrong, [""; 0], "{name}");
    if promise != Promise::Forgetful {
        assert_eq!(differing, [""; 0], "{name}");
    }
}
