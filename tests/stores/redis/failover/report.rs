//! The verdict on a run.

use std::time::{Duration, Instant};

use crate::journal::{Span, Verdict};
use crate::load::Shared;
use crate::plan::calls;

/// Time for the library to detect that another server is the primary.
const MOMENT: Duration = Duration::from_secs(1);

/// A fault, from the servers' view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) at: Instant,
    /// When the servers could serve the keys again.
    pub(crate) served: Instant,
}

/// The permitted damage of a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// None: no key has two answers, and no body runs again without need.
    Kept,
    /// A forgotten claim may run again, but all answers of a key are equal.
    Equal,
    /// Servers may lose writes that they acknowledged during the failover, and no others. Keys end and calls continue
    /// all the same.
    Forgetful,
}

/// Judges a run with one fault on one shard.
pub(crate) fn judge(name: &str, promise: Promise, fault: Fault, shared: &Shared, hit: usize) {
    let meanwhile = fault.at..fault.served + MOMENT;
    let forgets = (promise != Promise::Kept).then(|| meanwhile.clone());
    conclude(name, promise, shared, forgets);
    for (key, returned) in shared.journal.forgotten() {
        let after = returned.saturating_duration_since(fault.at);
        let span = fault.served - fault.at;
        assert!(
            meanwhile.contains(&returned),
            "{name}: key {key} had another answer {after:?} after the fault; servers: {span:?}"
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
