//! Waiting for a body that runs elsewhere, once for all calls of a key in this process.
//!
//! On the engine's own thread, so that it does not depend on any one of the waiting calls being
//! polled, nor on the runtime that it runs on.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::cache::Life;
use crate::clock::deadline;
use crate::engine::Core;
use crate::fingerprint::Fingerprint;
use crate::flight::{Follower, Landing, Ticket};
use crate::operation::RecordKey;
use crate::record::{Owner, State};
use crate::store::{ReadReply, Watch};

impl Core {
    /// Waits on behalf of all calls of this key: `lease_left` is what the claim elsewhere has left.
    /// Gives the place among the waiting of the call that found it.
    pub(crate) fn watch_over(
        self: &Arc<Self>,
        key: &RecordKey,
        fingerprint: Fingerprint,
        lease_left: Duration,
        ticket: Ticket,
    ) -> Option<Follower> {
        ticket.elsewhere(self.clock.now() + lease_left);
        let follower = ticket.follow();
        let vigil = Vigil {
            core: Arc::clone(self),
            key: key.clone(),
            fingerprint,
            ticket,
        };
        self.keeper
            .spawn(async move { vigil.keep(lease_left).await });
        follower
    }
}

struct Vigil {
    core: Arc<Core>,
    key: RecordKey,
    fingerprint: Fingerprint,
    ticket: Ticket,
}

/// What a look at the record says.
enum Look {
    Running(Duration),
    Landed(Landing),
    /// Whoever claims now may be granted the key, or is told why not.
    Ask,
    Silent,
}

impl Vigil {
    async fn keep(self, mut lease_left: Duration) {
        let clock = &*self.core.clock;
        let mut watch = self.watch().await;
        let mut backoff = Backoff::new(&Owner::random());
        let mut silent_since = None;
        // What happened before the watch began is seen by looking once more.
        let mut told = watch.is_some();
        loop {
            if !told {
                let pause = match watch {
                    Some(_) => backoff.floor(),
                    None => backoff.poll(),
                };
                let moment = clock.now() + pause.min(lease_left);
                told = if let Some(watch) = &mut watch {
                    deadline(clock, moment, pin!(watch.changed())).await.is_ok()
                } else {
                    clock.sleep_until(moment).await;
                    false
                };
            }
            if !self.ticket.is_watched() {
                return;
            }
            if watch.as_ref().is_some_and(Watch::has_lapsed) {
                watch = self.watch().await;
            }
            match self.look().await {
                Look::Running(left) => {
                    lease_left = left;
                    silent_since = None;
                    self.ticket.elsewhere(clock.now() + left);
                }
                Look::Landed(landing) => {
                    if let Some(watch) = &watch
                        && !told
                    {
                        watch.missed();
                    }
                    if let Some(word) = self.ticket.land_from_afar(landing) {
                        word.told().await;
                    }
                    return;
                }
                Look::Ask => return,
                Look::Silent => {
                    // Asked for a claim, the store says what is wrong with it.
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
        // A store that cannot tell is asked again and again instead.
        watch.ok()?.ok()?
    }

    async fn look(&self) -> Look {
        let core = &self.core;
        let (sent, permit) = (core.clock.now(), core.permit(&self.key));
        let moment = sent + core.limits.claim_deadline;
        let reply = deadline(&*core.clock, moment, pin!(core.store.glance(&self.key))).await;
        let (record, left) = match reply {
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
            Look::Running(lease_left)
        } else if matches!(header.state, State::Done { .. }) {
            let life = Life {
                left,
                sent,
                dated: true,
            };
            core.remember(permit, &self.key, &record, life);
            let at = core.clock.now();
            Look::Landed(Landing::Done {
                record,
                left,
                at,
                asked: false,
                dated: true,
            })
        } else {
            Look::Ask
        }
    }
}
