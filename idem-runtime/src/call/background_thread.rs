//! The engine's background thread: lease renewals, and jobs that outlive their callers.
//!
//! It runs
//!
//! - the renewals of all leases: each every third of it, until it is unregistered or lost (`renew`),
//! - endings of dropped callers and of callers whose deadline is over (`spawn_awaited`), which take turns while they
//!   retry (`retry_turn`),
//! - waits for the bodies of other processes, and reads of the store (`spawn`).
//!
//! A runtime that a body blocks would starve the lease of every other body on it; so would a connection whose driver
//! runs there. Renewals therefore run here, and a store makes the connection for them here. The thread also counts what
//! a shutdown waits for: claims, jobs, and answers that the store has not confirmed.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};

use crate::call::lease::{GONE, Lease, OUTSIDE, Renewal, Unsent};
use crate::call::outage::Outage;
use crate::env::backoff::Backoff;
use crate::env::call_span::CallSpan;
use crate::env::catch_unwind::unwind;
use crate::env::clock::{Clock, deadline};
use crate::env::lock::Lock;
use crate::env::observer::{Event, EventKind, Observer};
use crate::env::striped::Lanes;
use crate::record::label::KeyLabel;
use crate::record::transition::RenewReply;
use crate::store::{Store, StoreError, StoreErrorKind};

/// Upper bound of the jobs that retry at the same time.
const RETRY_TURNS: usize = 64;

/// `sleeps_until` while the thread is awake, or sleeps until it is woken.
const UNTIL_WOKEN: u64 = u64::MAX;

/// The reason of a lost lease.
const TAKEN: &str = "another attempt holds the claim or has finished";

/// Handle to the engine's background thread; dropping it ends the thread after its jobs.
pub(crate) struct BackgroundThread {
    state: Arc<ThreadState>,
}

/// The state that the thread shares with its handle.
struct ThreadState {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    /// Whether the observer wants spans: jobs and renewals are then in the span of their call.
    spans: bool,
    /// Records the store's replies.
    outage: Arc<Outage>,
    /// When each lease is to be renewed; without leases that are being renewed right now, or are lost.
    queues: Lanes<Lock<RenewalQueue>>,
    /// Until when the thread sleeps, in nanoseconds of the clock. Claims that end sooner than a third of
    /// their lease, nearly all of them, never wake it.
    sleeps_until: AtomicU64,
    /// Forward step of the server's clock since the last scan, in nanoseconds.
    stepped: AtomicU64,
    wake: Notify,
    starting: Lock<()>,
    thread: OnceLock<Handle>,
    closed: AtomicBool,
    /// Unfinished jobs of dropped callers.
    jobs: AtomicUsize,
    /// Answers of bodies that the store has not confirmed.
    unstored: AtomicUsize,
    /// For jobs that retry: an outage leaves thousands of them.
    retry_turns: Semaphore,
    /// The last request of a retrying job failed.
    store_fails: AtomicBool,
    /// Notified when nothing is left to do.
    idle: Notify,
}

impl BackgroundThread {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        outage: Arc<Outage>,
    ) -> Self {
        Self {
            state: Arc::new(ThreadState {
                store,
                clock,
                spans: observer.wants_spans(),
                observer,
                outage,
                queues: Lanes::default(),
                sleeps_until: AtomicU64::new(UNTIL_WOKEN),
                stepped: AtomicU64::new(0),
                wake: Notify::new(),
                starting: Lock::new(()),
                thread: OnceLock::new(),
                closed: AtomicBool::new(false),
                jobs: AtomicUsize::new(0),
                unstored: AtomicUsize::new(0),
                retry_turns: Semaphore::new(RETRY_TURNS),
                store_fails: AtomicBool::new(false),
                idle: Notify::new(),
            }),
        }
    }

    /// Starts the thread if it does not run yet. Nothing may be claimed without it.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        if self.state.thread.get().is_some() {
            return Ok(());
        }
        // Two callers may arrive at once; the lock lets one of them start the thread.
        let _starting = self.state.starting.lock();
        if self.state.thread.get().is_some() {
            return Ok(());
        }
        // The runtime is made on its own thread: if that thread fails, it must not be dropped on another runtime's.
        let (sender, receiver) = mpsc::channel();
        let state = Arc::clone(&self.state);
        std::thread::Builder::new()
            .name("idem-background".to_owned())
            .spawn(
                move || match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => {
                        // The caller that started this thread waits for it.
                        let _ = sender.send(Ok(runtime.handle().clone()));
                        runtime.block_on(state.run());
                    }
                    Err(error) => drop(sender.send(Err(error))),
                },
            )?;
        let handle = receiver.recv().map_err(std::io::Error::other)??;
        // Just checked to be empty, under the lock.
        let _ = self.state.thread.set(handle);
        Ok(())
    }

    /// Registers a lease for renewal: every third of it, beginning a third after `granted`, until it is given up.
    pub(crate) fn register(&self, lease: &Arc<Lease>, granted: Duration) {
        let mut queue = self.state.queue(lease);
        queue.registered += 1;
        self.state.insert(queue, lease, granted + lease.lasts() / 3);
    }

    /// Unregisters a lease: it is renewed no longer.
    pub(crate) fn unregister(&self, lease: &Lease) {
        self.state.unregister(lease);
    }

    /// Runs a job on the thread; the end of the engine does not wait for it.
    pub(crate) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        if let Some(thread) = self.state.thread.get() {
            thread.spawn(job);
        }
    }

    /// The number of held claims, and of unfinished jobs.
    pub(crate) fn claims_and_jobs(&self) -> (usize, usize) {
        // Counted at one moment: a claim may begin in one queue and outlive its outer claim, which is in another.
        let queues = self.state.queues.locked();
        let claims = queues.iter().map(|queue| queue.registered).sum();
        drop(queues);
        (claims, self.state.jobs.load(Ordering::Acquire))
    }

    /// Records a reply of the store to a job.
    pub(crate) fn record_reply(&self) {
        self.state.set_store_fails(false);
    }

    /// Records that the store failed for a job.
    pub(crate) fn record_failure(&self) {
        self.state.set_store_fails(true);
    }

    /// Waits for the turn of a job that retries. While the store fails, turns are held through a pause, so that all
    /// jobs together cannot flood it; once it answers, they follow each other without one.
    pub(crate) async fn retry_turn(&self, backoff: &mut Backoff) -> Option<SemaphorePermit<'_>> {
        let turn = self.state.retry_turns.acquire().await.ok();
        if self.state.store_fails.load(Ordering::Relaxed) {
            let clock = &self.state.clock;
            clock.sleep_until(clock.now() + backoff.retry()).await;
        }
        turn
    }

    /// The number of answers of bodies that the store has not confirmed.
    pub(crate) fn unstored(&self) -> usize {
        self.state.unstored.load(Ordering::Acquire)
    }

    pub(crate) fn count_unstored(&self) -> Unstored {
        self.state.unstored.fetch_add(1, Ordering::AcqRel);
        Unstored(Arc::clone(&self.state))
    }

    /// Notified after the last claim or job.
    pub(crate) fn idle(&self) -> &Notify {
        &self.state.idle
    }

    /// Runs a job on the thread, independent of the caller's runtime; the end of the engine waits for it.
    pub(crate) fn spawn_awaited(&self, job: impl Future<Output = ()> + Send + 'static) {
        if let Some(thread) = self.state.thread.get() {
            let guard = JobGuard::new(&self.state);
            let job = async move {
                job.await;
                drop(guard);
            };
            if self.state.spans {
                thread.spawn(CallSpan::current().instrument(job));
            } else {
                thread.spawn(job);
            }
        }
    }

    /// The observer of the store: the engine's observer, after the thread has seen the event.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.state) as _
    }

    /// Ends a lease whose claim another attempt holds, or which has finished.
    pub(crate) fn lose(&self, lease: &Lease) {
        self.state.lose(lease, TAKEN);
    }

    /// Ends a lease whose renewal or append the store has refused.
    pub(crate) fn refuse(&self, lease: &Lease) {
        self.state.refuse(lease);
    }

    /// Renews a lease once, besides its automatic renewals.
    ///
    /// On this thread too: a connection that was made on the caller's runtime would be driven there, and every lease
    /// with it; a runtime that a body blocks would delay jobs of other callers.
    pub(crate) async fn renew_now(
        &self,
        lease: &Arc<Lease>,
        patience: Duration,
    ) -> Result<(), Unsent> {
        let (sender, receiver) = oneshot::channel();
        let (state, lease) = (Arc::clone(&self.state), Arc::clone(lease));
        self.spawn_awaited(async move {
            let sent = state.clock.now();
            let (grant, renewal) = (lease.grant(), Renewal::of(&lease));
            let reply = contained(|| renewal.send(&*state.store, &lease));
            let renewed = match deadline(&*state.clock, sent + patience, pin!(reply)).await {
                Ok(Ok(RenewReply::Renewed | RenewReply::Reasserted)) => {
                    lease.renewed(sent);
                    Ok(())
                }
                // The reply is about a claim that was granted anew since.
                Ok(Ok(RenewReply::Lost | RenewReply::Unreadable(_))) if lease.grant() != grant => {
                    Ok(())
                }
                Ok(Ok(RenewReply::Lost)) => Err(Unsent::Lost),
                Ok(Ok(RenewReply::Unreadable(error))) => Err(Unsent::Unreadable(error)),
                Ok(Err(error)) => Err(Unsent::Unconfirmed(Some(error))),
                Err(_) => Err(Unsent::Unconfirmed(None)),
            };
            match &renewed {
                Err(Unsent::Lost) => state.refuse(&lease),
                Err(Unsent::Unreadable(error)) => state.lose(&lease, &error.to_string()),
                _ => {}
            }
            // The caller may be gone.
            let _ = sender.send(renewed);
        });
        // Without a reply the thread has ended.
        receiver.await.unwrap_or(Err(Unsent::Unconfirmed(None)))
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::SeqCst);
        self.state.wake.notify_one();
    }
}

debug_fields!(BackgroundThread {});

/// An answer that the store has not confirmed.
pub(crate) struct Unstored(Arc<ThreadState>);

impl Drop for Unstored {
    fn drop(&mut self) {
        self.0.unstored.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts a job as unfinished.
struct JobGuard(Arc<ThreadState>);

impl JobGuard {
    fn new(state: &Arc<ThreadState>) -> Self {
        state.jobs.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(state))
    }
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::AcqRel);
        self.0.idle.notify_waiters();
        self.0.wake.notify_one();
    }
}

impl ThreadState {
    fn set_store_fails(&self, fails: bool) {
        // Throttled, because several threads read this cache line.
        if self.store_fails.load(Ordering::Relaxed) != fails {
            self.store_fails.store(fails, Ordering::Relaxed);
        }
    }

    /// Renews due leases, then sleeps until the next one.
    async fn run(self: Arc<Self>) {
        loop {
            // From here on every registration wakes this loop, until it stores how long it sleeps.
            self.sleeps_until.store(UNTIL_WOKEN, Ordering::SeqCst);
            let (now, mut due, mut next) = (nanos(self.clock.now()), Vec::new(), UNTIL_WOKEN);
            let now = now.saturating_add(self.stepped.swap(0, Ordering::SeqCst));
            for queue in self.queues.all() {
                let mut queue = queue.lock();
                queue.take_due(now, &mut due);
                if let Some(&(moment, _)) = queue.leases.keys().next() {
                    next = next.min(moment);
                }
            }
            for lease in due {
                let span = lease.span.get();
                tokio::spawn(span.instrument(Arc::clone(&self).renew(lease)));
            }
            let sleeps = next != UNTIL_WOKEN;
            let closed = self.closed.load(Ordering::SeqCst);
            if closed && !sleeps && self.jobs.load(Ordering::Acquire) == 0 {
                return;
            }
            let woken = self.wake.notified();
            if sleeps {
                self.sleeps_until.store(next, Ordering::SeqCst);
                // Both ways of waking mean the same: scan again.
                let _ = deadline(&*self.clock, Duration::from_nanos(next), pin!(woken)).await;
            } else {
                woken.await;
            }
        }
    }

    fn queue(&self, lease: &Lease) -> MutexGuard<'_, RenewalQueue> {
        self.queues.get(lease.slot.lane).lock()
    }

    /// Queues a registered lease for renewal at `due`.
    fn enqueue(&self, lease: &Arc<Lease>, due: Duration) {
        self.insert(self.queue(lease), lease, due);
    }

    /// Inserts the lease; wakes a thread that would sleep past it.
    fn insert(&self, mut queue: MutexGuard<'_, RenewalQueue>, lease: &Arc<Lease>, due: Duration) {
        let slot = &lease.slot;
        let due = nanos(if slot.outlasts_max_run() {
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

    fn unregister(&self, lease: &Lease) {
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

    fn emit(&self, lease: &Lease, kind: EventKind<'_>) {
        self.observer.observe(&Event {
            operation: lease.key.operation().as_str(),
            key: Some(lease.key.digest()),
            label: lease.policy.label.as_ref().map(KeyLabel::as_str),
            kind,
        });
    }

    /// Ends a lease that is lost. The observer is notified once.
    fn lose(&self, lease: &Lease, reason: &str) {
        // Read before the loss is announced, because the body may end at once.
        let running = self.is_running(lease);
        if lease.lose() && running {
            self.emit(lease, EventKind::LeaseLost { reason });
        }
    }

    /// Ends a lease whose renewal or append the store has refused.
    ///
    /// Not after an unknown outcome was sent, which may have taken the place of the claim: its own reply decides.
    fn refuse(&self, lease: &Lease) {
        if !lease.slot.is_unknown_sent() {
            self.lose(lease, TAKEN);
        }
    }

    /// Sends one renewal, and queues the next.
    async fn renew(self: Arc<Self>, lease: Arc<Lease>) {
        let sent = self.clock.now();
        let emit = |kind| self.emit(&lease, kind);
        let lost = |reason: &str| self.lose(&lease, reason);
        // A body that has ended does not hang: its answer is being stored, and another body would contradict it.
        if sent >= lease.give_up && !lease.slot.outlasts_max_run() {
            return lost(
                "the body ran for longer than `max_run`, so its lease is no longer renewed",
            );
        }
        let third = lease.lasts() / 3;
        let (grant, renewal) = (lease.grant(), Renewal::of(&lease));
        // A panic would otherwise end the renewals of the lease.
        let reply = contained(|| renewal.send(&*self.store, &lease));
        let next = match deadline(&*self.clock, sent + third, pin!(reply)).await {
            Ok(Ok(RenewReply::Renewed | RenewReply::Reasserted)) => {
                self.outage.record_reply(sent);
                lease.renewed(sent);
                emit(EventKind::Renewed);
                sent + third
            }
            // The reply is about a claim that was granted anew since.
            Ok(Ok(RenewReply::Lost | RenewReply::Unreadable(_))) if lease.grant() != grant => sent,
            Ok(Ok(RenewReply::Lost)) if lease.slot.is_unclaimed() => return,
            // Not renewed, so that the lease lapses if the unknown outcome was not stored.
            Ok(Ok(RenewReply::Lost)) if lease.slot.is_unknown_sent() && !lease.is_lost() => {
                self.clock.now() + third
            }
            Ok(Ok(RenewReply::Lost)) => {
                return lost(TAKEN);
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

/// The store's reply, a panic as a transient error.
///
/// The request is made inside: given as a future, it would take its space twice.
pub(crate) async fn contained<T, F>(send: impl FnOnce() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let panicked = || StoreError::new(StoreErrorKind::Unavailable, "the store has panicked");
    let reply = unwind(pin!(async { send().await })).await;
    reply.unwrap_or_else(|_| Err(panicked()))
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

/// Leases by due time in nanoseconds of the clock, and id.
#[derive(Default)]
struct RenewalQueue {
    leases: BTreeMap<(u64, u64), Arc<Lease>>,
    next_id: u64,
    /// The number of registered leases. Leases whose renewal is in progress are counted, and are not in `leases`.
    registered: usize,
}

impl RenewalQueue {
    /// Removes the leases whose renewal is due.
    fn take_due(&mut self, now: u64, due: &mut Vec<Arc<Lease>>) {
        while let Some(entry) = self.leases.first_entry()
            && entry.key().0 <= now
        {
            let lease = entry.remove();
            lease.slot.due.store(OUTSIDE, Ordering::Relaxed);
            due.push(lease);
        }
    }
}

/// A moment of the clock in nanoseconds.
fn nanos(time: Duration) -> u64 {
    // 584 years; a lease is given up long before.
    u64::try_from(time.as_nanos()).map_or(GONE - 1, |nanos| nanos.min(GONE - 1))
}
