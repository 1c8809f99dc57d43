//! One wait for a body elsewhere, for all calls of a key.
//!
//! It runs on the engine's own thread, so that it depends neither on any one of the waiting calls being polled, nor on
//! the runtime of that call.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::call::core::Core;
use crate::env::backoff::Backoff;
use crate::env::clock::deadline;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::operation::RecordKey;
use crate::local::cache::Life;
use crate::local::singleflight::{Follower, Leader, SharedOutcome};
use crate::record::{Owner, State};
use crate::store::{ReadReply, Watch};

/// A body that runs in another process.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// It ran at some moment after this one of the clock.
    pub(crate) seen: Duration,
    pub(crate) lease_left: Duration,
}

/// Polls the store, and awaits its notifications, until an outcome.
pub(crate) struct RemoteWait {
    core: Arc<Core>,
    key: RecordKey,
    fingerprint: Fingerprint,
    dated: bool,
    running: Running,
    leader: Leader,
}

enum PollResult {
    Running(Running),
    Outcome(SharedOutcome),
    /// A claim is needed: it may be granted, or is refused with a reason.
    ClaimAgain,
    NoReply,
}

impl RemoteWait {
    /// Starts the wait for all calls of this key. Returns the follower of the call that found the remote body;
    /// `fingerprint` and `dated` are of that call.
    pub(crate) fn start(
        core: &Arc<Core>,
        key: &RecordKey,
        (fingerprint, dated): (Fingerprint, bool),
        running: Running,
        leader: Leader,
    ) -> Option<Follower> {
        leader.set_remote(core.clock.now() + running.lease_left);
        let follower = leader.follow();
        let remote_wait = Self {
            core: Arc::clone(core),
            key: key.clone(),
            fingerprint,
            dated,
            running,
            leader,
        };
        core.background
            .spawn(async move { remote_wait.run().await });
        follower
    }

    async fn run(mut self) {
        let core = Arc::clone(&self.core);
        let clock = &*core.clock;
        let mut watch = self.watch().await;
        let mut backoff = Backoff::new(&Owner::random());
        let mut no_reply_since = None;
        // A change from before the watch began is found by one more read.
        let mut notified = watch.is_some();
        loop {
            if !notified {
                let pause = match watch {
                    Some(_) => backoff.floor(),
                    None => backoff.poll(),
                };
                let moment = clock.now() + pause.min(self.running.lease_left);
                notified = if let Some(watch) = &mut watch {
                    deadline(clock, moment, pin!(watch.changed())).await.is_ok()
                } else {
                    clock.sleep_until(moment).await;
                    false
                };
            }
            if !self.leader.has_followers() {
                return;
            }
            if watch.as_ref().is_some_and(Watch::has_lapsed) {
                watch = self.watch().await;
            }
            match self.poll().await {
                PollResult::Running(running) => {
                    self.running = running;
                    no_reply_since = None;
                    self.leader.set_remote(clock.now() + running.lease_left);
                }
                PollResult::Outcome(outcome) => {
                    if let Some(watch) = &watch
                        && !notified
                    {
                        watch.missed();
                    }
                    if let Some(last) = self.leader.notify_last(outcome) {
                        last.sent().await;
                    }
                    return;
                }
                PollResult::ClaimAgain => return,
                PollResult::NoReply => {
                    // The end of the lease, which may be now, would poll without a pause.
                    self.running.lease_left = Duration::MAX;
                    // The followers then claim, and get the error of the store.
                    let since = *no_reply_since.get_or_insert(clock.now());
                    if clock.now() >= since + self.core.limits.claim_deadline {
                        return;
                    }
                }
            }
            notified = false;
        }
    }

    /// Subscribes to the key's notifications, where the store has them.
    async fn watch(&self) -> Option<Watch> {
        let core = &self.core;
        let moment = core.clock.now() + core.limits.claim_deadline;
        let watch = deadline(&*core.clock, moment, pin!(core.store.watch(&self.key))).await;
        // A store that cannot notify is polled instead.
        watch.ok()?.ok()?
    }

    /// Reads the record, with an exact life if a caller needs it.
    async fn poll(&self) -> PollResult {
        match self.poll_once(false).await {
            // A caller needs the age of the answer.
            PollResult::Outcome(_) if self.dated => self.poll_once(true).await,
            result => result,
        }
    }

    /// `dated`: the remaining life of an answer must be exact.
    async fn poll_once(&self, dated: bool) -> PollResult {
        let core = &self.core;
        let (sent, permit) = (core.clock.now(), core.cache_permit(&self.key));
        let moment = sent + core.limits.claim_deadline;
        let reply = if dated {
            core.store.read(&self.key)
        } else {
            core.store.poll(&self.key)
        };
        let (record, left) = match deadline(&*core.clock, moment, pin!(reply)).await {
            Ok(Ok(ReadReply::Found { record, left })) => (record, left),
            Ok(Ok(_)) => return PollResult::ClaimAgain,
            Ok(Err(error)) if !error.is_transient() => return PollResult::ClaimAgain,
            _ => return PollResult::NoReply,
        };
        let header = &record.header;
        let lease_left = header.lease_left(left);
        if !header.fingerprint.matches(self.fingerprint) {
            PollResult::ClaimAgain
        } else if !lease_left.is_zero() {
            PollResult::Running(Running {
                seen: sent,
                lease_left,
            })
        } else if matches!(header.state, State::Done { .. }) {
            let left = if dated {
                left
            } else {
                // It was stored after the body was seen to run.
                let ago = sent.saturating_sub(self.running.seen);
                left.min(header.retain.saturating_sub(ago))
            };
            let life = Life { left, sent, dated };
            core.cache_answer(permit, &self.key, &record, life);
            let at = core.clock.now();
            PollResult::Outcome(SharedOutcome::Done {
                record,
                sent,
                left,
                at,
                hook_ran: false,
                dated,
            })
        } else {
            PollResult::ClaimAgain
        }
    }
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;
