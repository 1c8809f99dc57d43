//! Lease renewals: each lease every third of it, until it is unregistered or lost.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use super::queue::{Queue, nanos};
use super::{BackgroundThread, ThreadState};
use crate::call::lease::{GONE, Lease, Renewal};
use crate::env::catch_unwind::unwind;
use crate::env::clock::{Elapsed, deadline};
use crate::env::observer::{Event, EventKind, Observer};
use crate::record::label::KeyLabel;
use crate::record::transition::RenewReply;
use crate::store::{StoreError, StoreErrorKind};

impl ThreadState {
    pub(super) fn queue(&self, lease: &Lease) -> MutexGuard<'_, Queue> {
        self.queues.get(lease.slot.lane).lock()
    }

    /// Queues the lease for renewal at this moment, unless it is no longer registered.
    fn enqueue(&self, lease: &Arc<Lease>, due: Duration) {
        self.insert(self.queue(lease), lease, due);
    }

    /// Inserts the lease into its locked queue, and wakes the thread if it sleeps for longer.
    pub(super) fn insert(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        lease: &Arc<Lease>,
        due: Duration,
    ) {
        let slot = &lease.slot;
        let due = nanos(if slot.body_has_ended() {
            due
        } else {
            // Wake at `max_run` if that precedes the next renewal.
            due.min(lease.give_up)
        });
        if slot.due.load(Ordering::Relaxed) == GONE {
            return;
        }
        queue.next_id += 1;
        let id = queue.next_id;
        slot.due.store(due, Ordering::Relaxed);
        slot.id.store(id, Ordering::Relaxed);
        queue.leases.insert((due, id), Arc::clone(lease));
        drop(queue);
        // The thread resets `sleeps_until` before it scans the queues: either the scan finds this lease, or this wakes
        // it.
        if due < self.sleeps_until.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    pub(super) fn unregister(&self, lease: &Lease) {
        let mut queue = self.queue(lease);
        queue.registered -= 1;
        let due = lease.slot.due.swap(GONE, Ordering::Relaxed);
        let left = queue
            .leases
            .remove(&(due, lease.slot.id.load(Ordering::Relaxed)));
        drop(queue);
        if self.spans {
            lease.span.release();
        }
        // Not under the lock: dropping the last reference ends more than the lease.
        drop(left);
    }

    /// Whether the body of this lease has not ended.
    fn is_running(&self, lease: &Lease) -> bool {
        let _queue = self.queue(lease);
        lease.slot.due.load(Ordering::Relaxed) != GONE && !lease.slot.body_has_ended()
    }

    /// Sends one renewal, and queues the next.
    pub(super) async fn renew(self: Arc<Self>, lease: Arc<Lease>) {
        let sent = self.clock.now();
        let emit = |kind: EventKind<'_>| {
            self.observer.observe(&Event {
                operation: lease.key.operation().as_str(),
                key: Some(lease.key.digest()),
                label: lease.policy.label.as_ref().map(KeyLabel::as_str),
                kind,
            });
        };
        let lost = |reason: &str| {
            // Read before the loss is announced, because the body may end at once. The lease is in no queue, but counts
            // as held until then.
            let running = self.is_running(&lease);
            lease.lose();
            if running {
                emit(EventKind::LeaseLost { reason });
            }
        };
        // A body that has ended does not hang: its answer is being stored, and another body would contradict it.
        if sent >= lease.give_up && !lease.slot.body_has_ended() {
            return lost(
                "the body ran for longer than `max_run`, so its lease is no longer renewed",
            );
        }
        let third = lease.lasts() / 3;
        let (grant, renewal) = (lease.grant(), Renewal::of(&lease));
        // A panic of the store, which its hook has reported, would otherwise end the renewals of the lease.
        let reply = async {
            let reply = pin!(async { renewal.send(&*self.store, &lease).await });
            unwind(reply).await.unwrap_or_else(|_| Err(panicked()))
        };
        let next = match deadline(&*self.clock, sent + third, pin!(reply)).await {
            Ok(Ok(RenewReply::Renewed | RenewReply::Reasserted)) => {
                self.outage.record_reply(sent);
                lease.renewed(sent);
                emit(EventKind::Renewed);
                sent + third
            }
            // The reply is about a claim that was granted anew since.
            Ok(Ok(RenewReply::Lost | RenewReply::Unreadable(_))) if lease.grant() != grant => sent,
            Ok(Ok(RenewReply::Lost)) => {
                return lost("another attempt holds the claim or has finished");
            }
            Ok(Ok(RenewReply::Unreadable(error))) => return lost(&error.to_string()),
            // No confirmation yet: retry sooner than a third of the lease, so that several tries fit into the rest of
            // it. Even a lapsed lease stays with its owner until another attempt takes it.
            Ok(Err(error)) => {
                emit(EventKind::RenewalFailed {
                    reason: &error.to_string(),
                });
                self.clock.now() + third / 4
            }
            Err(_) => {
                emit(EventKind::RenewalFailed {
                    reason: "no reply within a third of the lease",
                });
                self.clock.now()
            }
        };
        self.enqueue(&lease, next);
    }
}

fn panicked() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the store has panicked")
}

impl BackgroundThread {
    /// The observer of the store: the engine's observer, after the thread has seen the event.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.state) as _
    }

    /// Renews a lease once, besides its automatic renewals.
    ///
    /// On this thread too: a connection that was made on the caller's runtime would be driven there, and every lease
    /// with it; a runtime that a body blocks would keep one that others wait for.
    pub(crate) async fn renew_now(
        &self,
        lease: &Arc<Lease>,
        patience: Duration,
    ) -> Result<Result<RenewReply, StoreError>, Elapsed> {
        let (sender, receiver) = oneshot::channel();
        let (state, lease) = (Arc::clone(&self.state), Arc::clone(lease));
        self.spawn_awaited(async move {
            let sent = state.clock.now();
            let renewal = Renewal::of(&lease);
            let reply = renewal.send(&*state.store, &lease);
            let reply = deadline(&*state.clock, sent + patience, pin!(reply)).await;
            if let Ok(Ok(RenewReply::Renewed | RenewReply::Reasserted)) = reply {
                lease.renewed(sent);
            }
            // The caller may be gone.
            let _ = sender.send(reply);
        });
        receiver.await.unwrap_or(Err(Elapsed))
    }
}

/// A forward step shortens each lease on the server by as much. Renewals that would have been due within the step
/// are due now; a lease that has lapsed by it is renewed as well, unless another attempt took it.
impl Observer for ThreadState {
    fn observe(&self, event: &Event<'_>) {
        if let EventKind::ClockStepped { by, forward: true } = event.kind {
            self.stepped.fetch_max(nanos(by), Ordering::SeqCst);
            self.wake.notify_one();
        }
        self.observer.observe(event);
    }
}

debug_fields!(ThreadState {});
