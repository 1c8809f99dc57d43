//! Detects a store failure that outlasts the claim deadline of a call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::call::lease::micros;
use crate::store::Reach;

/// Part of `claim_deadline` for retries during an outage.
const PART: u32 = 8;
/// Lower bound of that part: connections remember a failed attempt for up to 100 ms, and the first call after a
/// recovery must find the server.
const LEAST: Duration = Duration::from_millis(250);
/// How many times `claim_deadline` an unobserved outage is remembered.
const REMEMBERED: u32 = 8;
/// A store with a reply within this part of `claim_deadline` is busy.
const RECENT: u32 = 2;
/// Precision of the last reply's time, in microseconds: not every reply is recorded.
const GRAIN: u64 = 20_000;

/// Outage state of the store, shared by the claims of an engine.
///
/// A failed claim is retried for `claim_deadline`, which bridges a failover. While a server refuses connections
/// for longer, full retries would delay every caller for an error that an earlier call already got. So once a claim
/// has failed for all of that time, later claims retry for a part of it, until one has a reply. A request that is in
/// flight is awaited as before: a reply may be slow, and a recovered server may be slow to connect to.
///
/// A claim that has no reply, or that the store's queue refused, does not reveal the cause. A flood slows a store until
/// claims time out, and must not turn off the protection against it. So a missing reply is an outage only if the store
/// has not replied to anything else of this engine lately.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// End of the outage, in microseconds of the engine's clock; 0: the store has replied since.
    until: AtomicU64,
    /// When the store last replied, in microseconds of the engine's clock; 0: never.
    replied: AtomicU64,
}

impl Outage {
    /// How long a claim that begins at `now` is retried.
    pub(crate) fn retry_time(&self, now: Duration, claim_deadline: Duration) -> Duration {
        if u128::from(self.until.load(Ordering::Relaxed)) <= now.as_micros() {
            return claim_deadline;
        }
        (claim_deadline / PART).max(LEAST).min(claim_deadline)
    }

    /// Records that all tries of a claim have failed by `now`.
    pub(crate) fn record_failure(&self, now: Duration, claim_deadline: Duration) {
        let until = now.saturating_add(claim_deadline.saturating_mul(REMEMBERED));
        self.until.store(micros(until), Ordering::Relaxed);
    }

    /// Records a reply of the store at this moment or later.
    pub(crate) fn record_reply(&self, at: Duration) {
        let at = micros(at).max(1);
        // Throttled, because every call reads this cache line.
        let last = self.replied.load(Ordering::Relaxed);
        if last == 0 || at > last.saturating_add(GRAIN) {
            self.replied.store(at, Ordering::Relaxed);
        }
    }

    /// Whether a claim failed by `now` for want of a store; `None`: there was no reply at all.
    pub(crate) fn is_outage(
        &self,
        reach: Option<Reach>,
        now: Duration,
        claim_deadline: Duration,
    ) -> bool {
        match reach.unwrap_or(Reach::Silent) {
            Reach::Answered | Reach::Here => false,
            Reach::Unreachable => true,
            Reach::Silent => {
                let replied = self.replied.load(Ordering::Relaxed);
                let lately = Duration::from_micros(replied) + claim_deadline / RECENT;
                replied == 0 || lately <= now
            }
        }
    }

    /// Ends the outage: a claim has a reply.
    pub(crate) fn end(&self) {
        // Usually there was none, and a write would invalidate a cache line that every call reads.
        if self.until.load(Ordering::Relaxed) != 0 {
            self.until.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(4);

    #[test]
    fn an_outage_without_calls_is_forgotten() {
        let (outage, now) = (Outage::default(), Duration::from_secs(100));
        outage.record_failure(now, DEADLINE);
        let end = now + DEADLINE * 8;
        let last = end.saturating_sub(Duration::from_micros(1));
        assert_eq!(outage.retry_time(last, DEADLINE), DEADLINE / 8);
        assert_eq!(outage.retry_time(end, DEADLINE), DEADLINE);
        // Each call that observes the outage extends it.
        outage.record_failure(last, DEADLINE);
        assert_eq!(outage.retry_time(end, DEADLINE), DEADLINE / 8);
    }

    #[test]
    fn an_error_reply_is_no_outage_and_an_unreachable_server_is_one() {
        let (outage, now) = (Outage::default(), Duration::from_secs(100));
        for replied in [false, true] {
            if replied {
                outage.record_reply(now);
            }
            assert!(!outage.is_outage(Some(Reach::Answered), now, DEADLINE));
            assert!(!outage.is_outage(Some(Reach::Here), now, DEADLINE));
            assert!(outage.is_outage(Some(Reach::Unreachable), now, DEADLINE));
        }
    }

    #[test]
    fn a_missing_reply_after_a_recent_one_is_no_outage() {
        let (outage, now) = (Outage::default(), Duration::from_secs(100));
        for reach in [None, Some(Reach::Silent)] {
            assert!(Outage::default().is_outage(reach, now, DEADLINE));
            outage.record_reply(now);
            assert!(!outage.is_outage(reach, now, DEADLINE));
            let us = Duration::from_micros(1);
            let end = now + DEADLINE / 2;
            assert!(!outage.is_outage(reach, end.saturating_sub(us), DEADLINE));
            assert!(outage.is_outage(reach, end, DEADLINE));
            // An earlier reply that is reported late changes nothing.
            outage.record_reply(Duration::from_secs(50));
            assert!(!outage.is_outage(reach, end.saturating_sub(us), DEADLINE));
        }
    }

    #[test]
    fn a_reply_at_the_beginning_of_the_clock_is_one() {
        let outage = Outage::default();
        outage.record_reply(Duration::ZERO);
        assert!(!outage.is_outage(None, Duration::from_secs(1), DEADLINE));
    }

    #[test]
    fn retry_time_has_a_lower_bound_and_never_exceeds_the_deadline() {
        let outage = Outage::default();
        outage.record_failure(Duration::ZERO, Duration::MAX);
        for (claim_deadline, retry_time) in [(2_000, 250), (1_000, 250), (250, 250), (40, 40)] {
            let actual = outage.retry_time(Duration::ZERO, Duration::from_millis(claim_deadline));
            assert_eq!(
                actual,
                Duration::from_millis(retry_time),
                "{claim_deadline}"
            );
        }
    }
}
