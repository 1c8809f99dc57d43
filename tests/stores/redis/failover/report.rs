//! The verdict on a run, and its printed report.

use std::time::Duration;

use crate::journal::Verdict;
use crate::load::{LEASE, Shared, WAIT};
use crate::plan::calls;
use crate::recovery::{Fault, Recovery, slowest};

/// The library's own deadlines: for a claim and for a completion, with one round trip in progress.
const DEADLINES: Duration = Duration::from_secs(5);
/// Time for the library to detect that another server is the primary.
const MOMENT: Duration = Duration::from_secs(1);
/// Time that a busy machine may add to any event.
const SLACK: Duration = Duration::from_secs(5);

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

/// Judges a run with one fault on some shards, and prints its times.
pub(crate) fn judge(
    name: &str,
    promise: Promise,
    fault: Fault,
    shared: &Shared,
    hit: impl Fn(usize) -> bool,
) {
    let ended = shared.journal.ended();
    let recovery = Recovery::of(fault, &ended, hit);
    let served = fault.served - fault.at;
    println!(
        "{name}: servers {served:.1?}, first call {:.1?}, normal {:.1?} (99 % within {:.1?})",
        recovery.first, recovery.normal, recovery.quick
    );
    conclude(name, promise, shared);
    assert!(
        recovery.first < served + SLACK,
        "{name}: calls are not answered when the servers are back: {recovery:?} {served:?}"
    );
    let meanwhile = fault.at..fault.served + MOMENT;
    let forgotten = shared.journal.forgotten();
    for (key, told) in &forgotten {
        let after = told.saturating_duration_since(fault.at);
        assert!(
            meanwhile.contains(told),
            "{name}: key {key} had another answer {after:?} after the fault; servers: {served:?}"
        );
    }
    // An unacknowledged claim, whose caller has given up, blocks its key for one lease.
    assert!(
        recovery.normal < served + LEASE + SLACK,
        "{name}: calls are not normal again: {recovery:?} {served:?}"
    );
}

/// Judges answers and runs of bodies.
pub(crate) fn conclude(name: &str, promise: Promise, shared: &Shared) {
    let verdict = shared.journal.verdict();
    let ended = shared.journal.ended();
    let Verdict {
        keys,
        runs,
        differing,
        again,
        wrong,
        refusals,
    } = &verdict;
    let longest = ended.iter().map(|call| call.took).max().unwrap_or_default();
    println!(
        "{name}: {} calls of {keys} keys, {runs} runs; {} keys with answers that differ, \
         {} bodies that ran again; slowest call {longest:.1?}",
        ended.len(),
        differing.len(),
        again.len()
    );
    for (refusal, times) in refusals {
        println!("{name}: refused {times} times: {refusal}");
    }
    for what in ["unsaved", "lease lost", "renewal failed", "adopted"] {
        println!("{name}: {what} {} times", shared.events.count(what));
    }
    assert!(ended.len() >= calls(), "{name}: {} calls", ended.len());
    assert_eq!(*wrong, [""; 0], "{name}");
    assert!(
        longest < WAIT + DEADLINES + SLACK,
        "{name}: a call takes {longest:?}"
    );
    if promise != Promise::Forgetful {
        assert_eq!(*differing, [""; 0], "{name}");
    }
    if promise == Promise::Kept {
        assert_eq!(*again, [""; 0], "{name}");
    }
}

/// Judges calls on shards without a fault.
pub(crate) fn unharmed(name: &str, fault: Fault, shared: &Shared, hit: impl Fn(usize) -> bool) {
    let span = (fault.at, fault.served);
    let (slowest, refused) = slowest(&shared.journal.ended(), span, |shard| !hit(shard));
    println!("{name}: other shards meanwhile: {refused} refused, the slowest {slowest:.1?}");
    assert_eq!(refused, 0, "{name}: calls on shards that were not hit");
}
