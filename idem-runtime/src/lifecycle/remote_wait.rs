//! Waits for a body of another process, once for all calls of a key.
//!
//! It runs on the engine's own thread, so that it depends neither on any one of the waiting calls being polled, nor on
//! the runtime of that call.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::env::backoff::Backoff;
use crate::env::clock::deadline;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::operation::RecordKey;
use crate::lifecycle::core::Core;
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

impl Core {
    /// Waits on behalf of all calls of this key. Returns the follower of the call that found the remote body;
    /// `fingerprint` and `dated` are of that call.
    pub(crate) fn watch_over(
        self: &Arc<Self>,
        key: &RecordKey,
        (fingerprint, dated): (Fingerprint, bool),
        running: Running,
        leader: Leader,
    ) -> Option<Follower> {
        leader.elsewhere(self.clock.now() + running.lease_left);
        let follower = leader.follow();
        let remote_wait = RemoteWait {
            core: Arc::clone(self),
            key: key.clone(),
            fingerprint,
            dated,
            running,
            leader,
        };
        self.keeper.spawn(async move { remote_wait.keep().await });
        follower
    }
}

struct RemoteWait {
    core: Arc<Core>,
    key: RecordKey,
    fingerprint: Fingerprint,
    dated: bool,
    running: Running,
    leader: Leader,
}

/// The result of reading the record.
enum Look {
    Running(Running),
    Landed(SharedOutcome),
    /// A claim is needed: it may be granted, or is refused with a reason.
    Ask,
    Silent,
}

impl RemoteWait {
    async fn keep(mut self) {
        let core = Arc::clone(&self.core);
        let clock = &*core.clock;
        let mut watch = self.watch().await;
        let mut backoff = Backoff::new(&Owner::random());
        let mut silent_since = None;
        // A change from before the watch began is found by one more read.
        let mut told = watch.is_some();
        loop {
            if !told {
                let pause = match watch {
                    Some(_) => backoff.floor(),
                    None => backoff.poll(),
                };
                let moment = clock.now() + pause.min(self.running.lease_left);
                told = if let Some(watch) = &mut watch {
                    deadline(clock, moment, pin!(watch.changed())).await.is_ok()
                } else {
                    clock.sleep_until(moment).await;
                    false
                };
            }
            if !self.leader.is_watched() {
                return;
            }
            if watch.as_ref().is_some_and(Watch::has_lapsed) {
                watch = self.watch().await;
            }
            match self.look().await {
                Look::Running(running) => {
                    self.running = running;
                    silent_since = None;
                    self.leader.elsewhere(clock.now() + running.lease_left);
                }
                Look::Landed(landing) => {
                    if let Some(watch) = &watch
                        && !told
                    {
                        watch.missed();
                    }
                    if let Some(word) = self.leader.land_from_afar(landing) {
                        word.told().await;
                    }
                    return;
                }
                Look::Ask => return,
                Look::Silent => {
                    // The followers then claim, and get the error of the store.
                    let since = *silent_since.get_or_insert(clock.now());
                    if clock.now() >= since + self.core.limits.claim_deadline {
                        return;
                    }
                }
            }
            told = false;
        }
    }

    async fn watch(&self) -> Option<Watch> {
        let core = &self.core;
        let moment = core.clock.now() + core.limits.claim_deadline;
        let watch = deadline(&*core.clock, moment, pin!(core.store.watch(&self.key))).await;
        // A store that cannot notify is polled instead.
        watch.ok()?.ok()?
    }

    async fn look(&self) -> Look {
        match self.look_once(false).await {
            // A caller needs the age of the answer.
            Look::Landed(_) if self.dated => self.look_once(true).await,
            look => look,
        }
    }

    /// `dated`: the remaining life of an answer must be exact.
    async fn look_once(&self, dated: bool) -> Look {
        let core = &self.core;
        let (sent, permit) = (core.clock.now(), core.permit(&self.key));
        let moment = sent + core.limits.claim_deadline;
        let reply = if dated {
            core.store.read(&self.key)
        } else {
            core.store.glance(&self.key)
        };
        let (record, left) = match deadline(&*core.clock, moment, pin!(reply)).await {
            Ok(Ok(ReadReply::Found { record, left })) => (record, left),
            Ok(Ok(_)) => return Look::Ask,
            Ok(Err(error)) if !error.is_transient() => return Look::Ask,
            _ => return Look::Silent,
        };
        let header = &record.header;
        let lease_left = header.lease_left(left);
        if !header.fingerprint.matches(self.fingerprint) {
            Look::Ask
        } else if !lease_left.is_zero() {
            Look::Running(Running {
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
            core.remember(permit, &self.key, &record, life);
            let at = core.clock.now();
            Look::Landed(SharedOutcome::Done {
                record,
                sent,
                left,
                at,
                asked: false,
                dated,
            })
        } else {
            Look::Ask
        }
    }
}

#[cfg(test)]
#[cfg(feature = "conformance")]
mod tests;
