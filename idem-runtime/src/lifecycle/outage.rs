//! A store that fails for longer than a call waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::store::Reach;

/// The part of `claim_deadline` for which a call tries again while an outage lasts.
const PART: u32 = 8;
/// No less than that: connections remember a failed attempt for up to 100 ms, and a server that is back is to be found
/// by the first call.
const LEAST: Duration = Duration::from_millis(250);
/// For how many times `claim_deadline` an outage is remembered that no call has seen.
const REMEMBERED: u32 = 8;
/// A store that has replied within this part of `claim_deadline` is busy, and not out of reach.
const LATELY: u32 = 2;
/// How exactly it is known when a store has replied, in microseconds: not every reply is written down.
const GRAIN: u64 = 20_000;

/// What the claims of an engine know of an outage of their store.
///
/// A claim that fails is sent again for `claim_deadline`, which bridges a failover. While a server refuses connections
/// for longer, that would keep every caller waiting for an answer that the call before it had. So once a claim has
/// failed for all of that time, those that follow try again for a part of it, until one has a reply. A try that is
/// under way is awaited as ever: a reply may be slow, and a server that is back may be slow to connect to.
///
/// A claim without a reply, or one that the store's queue refused, says nothing about why. A flood makes a store so slow that claims time out, and must not
/// turn off what protects from it. So silence is an outage only where the store has not replied to anything else of
/// this engine lately.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// Microseconds of the engine's clock; 0: the store has replied since.
    until: AtomicU64,
    /// When the store has replied last, in microseconds of the engine's clock; 0: it has not.
    replied: AtomicU64,
}

impl Outage {
    /// For how long a claim that begins at `now` is sent again after errors.
    pub(crate) fn patience(&self, now: Duration, claim_deadline: Duration) -> Duration {
        if u128::from(self.until.load(Ordering::Relaxed)) <= now.as_micros() {
            return claim_deadline;
        }
        (claim_deadline / PART).max(LEAST).min(claim_deadline)
    }

    /// A claim has failed for as long as it was tried, up to `now`.
    pub(crate) fn goes_on(&self, now: Duration, claim_deadline: Duration) {
        let until = now.saturating_add(claim_deadline.saturating_mul(REMEMBERED));
        let until = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::Relaxed);
    }

    /// The store has replied, at this moment at the earliest.
    pub(crate) fn hears(&self, at: Duration) {
        let at = u64::try_from(at.as_micros()).unwrap_or(u64::MAX).max(1);
        // A line that every call reads is not written by every call.
        let last = self.replied.load(Ordering::Relaxed);
        if last == 0 || at > last.saturating_add(GRAIN) {
            self.replied.store(at, Ordering::Relaxed);
        }
    }

    /// Whether a claim that failed so by `now` has failed for want of a store; `None`: there was no reply at all.
    pub(crate) fn is_one(
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
                let lately = Duration::from_micros(replied) + claim_deadline / LATELY;
                replied == 0 || lately <= now
            }
        }
    }

    /// A claim has a reply.
    pub(crate) fn ends(&self) {
        // Nearly always there was none: a line that every call reads is not written by every call.
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
    fn patience_is_short_from_a_failure_to_a_reply() {
        let (outage, now) = (Outage::default(), Duration::from_secs(100));
        assert_eq!(outage.patience(now, DEADLINE), DEADLINE);
        outage.goes_on(now, DEADLINE);
        assert_eq!(outage.patience(now, DEADLINE), DEADLINE / 8);
        outage.ends();
        assert_eq!(outage.patience(now, DEADLINE), DEADLINE);
    }

    #[test]
    fn an_outage_that_no_call_sees_is_forgotten() {
        let (outage, now) = (Outage::default(), Duration::from_secs(100));
        outage.goes_on(now, DEADLINE);
        let end = now + DEADLINE * 8;
        let last = end.saturating_sub(Duration::from_micros(1));
        assert_eq!(outage.patience(last, DEADLINE), DEADLINE / 8);
        assert_eq!(outage.patience(end, DEADLINE), DEADLINE);
        // Each call that sees it makes it last longer.
        outage.goes_on(last, DEADLINE);
        assert_eq!(outage.patience(end, DEADLINE), DEADLINE / 8);
    }

    #[test]
    fn what_the_store_says_itself_is_no_outage_and_a_server_that_is_not_there_is_one() {
        let (outage, now) = (Outage::default(), Duration::from_secs(100));
        for replied in [false, true] {
            if replied {
                outage.hears(now);
            }
            assert!(!outage.is_one(Some(Reach::Answered), now, DEADLINE));
            assert!(!outage.is_one(Some(Reach::Here), now, DEADLINE));
            assert!(outage.is_one(Some(Reach::Unreachable), now, DEADLINE));
        }
    }

    #[test]
    fn silence_of_a_store_that_has_replied_lately_is_no_outage() {
        let (outage, now) = (Outage::default(), Duration::from_secs(100));
        for silence in [None, Some(Reach::Silent)] {
            assert!(Outage::default().is_one(silence, now, DEADLINE));
            outage.hears(now);
            assert!(!outage.is_one(silence, now, DEADLINE));
            let us = Duration::from_micros(1);
            let end = now + DEADLINE / 2;
            assert!(!outage.is_one(silence, end.saturating_sub(us), DEADLINE));
            assert!(outage.is_one(silence, end, DEADLINE));
            // An earlier reply that is heard of late changes nothing.
            outage.hears(Duration::from_secs(50));
            assert!(!outage.is_one(silence, end.saturating_sub(us), DEADLINE));
        }
    }

    #[test]
    fn a_reply_at_the_beginning_of_the_clock_is_one() {
        let outage = Outage::default();
        outage.hears(Duration::ZERO);
        assert!(!outage.is_one(None, Duration::from_secs(1), DEADLINE));
    }

    #[test]
    fn patience_is_no_shorter_than_a_store_remembers_and_no_longer_than_it_was() {
        let outage = Outage::default();
        outage.goes_on(Duration::ZERO, Duration::MAX);
        for (claim_deadline, patience) in [(2_000, 250), (1_000, 250), (250, 250), (40, 40)] {
            let of = outage.patience(Duration::ZERO, Duration::from_millis(claim_deadline));
            assert_eq!(of, Duration::from_millis(patience), "{claim_deadline}");
        }
    }
}
