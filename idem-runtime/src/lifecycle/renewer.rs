//! The engine's own thread: it renews leases, and finishes the work of dropped callers.
//!
//! A runtime that a body blocks would starve the lease of every other body on it; so would a connection whose driver
//! runs there. Renewals therefore run here, and a store makes the connection for them here.

mod steps;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::env::backoff::Backoff;
use crate::env::clock::{Clock, deadline};
use crate::env::observer::{Event, EventKind, Observer};
use crate::env::striped::Lanes;
use crate::lifecycle::lease::{GONE, Lease, OUTSIDE};
use crate::lifecycle::outage::Outage;
use crate::record::transition::RenewReply;
use crate::store::Store;

/// How many jobs at most retry at a time.
const TURNS: usize = 64;

/// `sleeps_until` while the thread is awake, or sleeps until it is woken.
const UNTIL_WOKEN: u64 = u64::MAX;

pub(crate) struct Renewer {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    /// Learns that the store replies.
    outage: Arc<Outage>,
    /// When each lease is to be renewed; without leases that are being renewed right now, or are lost.
    queues: Lanes<Mutex<Queue>>,
    /// Until when the thread sleeps, in nanoseconds of the clock. Claims that end sooner than a third of
    /// their lease, nearly all of them, never wake it.
    sleeps_until: AtomicU64,
    /// Forward step of the server's clock since the last scan, in nanoseconds.
    stepped: AtomicU64,
    wake: Notify,
    starting: Mutex<()>,
    thread: OnceLock<Handle>,
    closed: AtomicBool,
    /// Unfinished jobs of dropped callers.
    jobs: AtomicUsize,
    /// Answers of bodies that the store has not confirmed.
    unstored: AtomicUsize,
    /// For jobs that retry: an outage leaves thousands of them.
    turns: Semaphore,
    /// The last of their requests failed.
    fails: AtomicBool,
    /// Notified when nothing is left to do.
    idle: Notify,
}

#[derive(Default)]
struct Queue {
    leases: BTreeMap<(u64, u64), Arc<Lease>>,
    next_id: u64,
    /// Registered leases, including any outside of `leases`.
    held: usize,
}

impl Renewer {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        outage: Arc<Outage>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                store,
                clock,
                observer,
                outage,
                queues: Lanes::default(),
                sleeps_until: AtomicU64::new(UNTIL_WOKEN),
                stepped: AtomicU64::new(0),
                wake: Notify::new(),
                starting: Mutex::new(()),
                thread: OnceLock::new(),
                closed: AtomicBool::new(false),
                jobs: AtomicUsize::new(0),
                unstored: AtomicUsize::new(0),
                turns: Semaphore::new(TURNS),
                fails: AtomicBool::new(false),
                idle: Notify::new(),
            }),
        }
    }

    /// Starts the thread if it does not run yet. Nothing may be claimed without it.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        if self.shared.thread.get().is_some() {
            return Ok(());
        }
        // Two callers may arrive at once; the lock lets one of them start the thread.
        let starting = &self.shared.starting;
        let _starting = starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.thread.get().is_some() {
            return Ok(());
        }
        // The runtime is made on its own thread: if that thread fails, it must not be dropped on another runtime's.
        let (tell, told) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("idem-keeper".to_owned())
            .spawn(
                move || match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => {
                        // The caller that started this thread waits for it.
                        let _ = tell.send(Ok(runtime.handle().clone()));
                        runtime.block_on(shared.keep());
                    }
                    Err(error) => drop(tell.send(Err(error))),
                },
            )?;
        let handle = told.recv().map_err(std::io::Error::other)??;
        // Just checked to be empty, under the lock.
        let _ = self.shared.thread.set(handle);
        Ok(())
    }

    /// Registers a lease for renewal: every third of it, beginning a third after `granted`, until it is given up.
    pub(crate) fn register(&self, lease: &Arc<Lease>, granted: Duration) {
        let mut queue = self.shared.queue(lease);
        queue.held += 1;
        self.shared
            .insert(queue, lease, granted + lease.lasts() / 3);
    }

    /// Unregisters a lease: it is renewed no longer.
    pub(crate) fn leave(&self, lease: &Lease) {
        self.shared.leave(lease);
    }

    /// Runs a job on the engine's thread; the end of the engine does not wait for it.
    pub(crate) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        if let Some(thread) = self.shared.thread.get() {
            thread.spawn(job);
        }
    }

    /// The number of held claims, and of unfinished jobs of dropped callers.
    pub(crate) fn busy(&self) -> (usize, usize) {
        // Counted at one moment: a claim may begin in one queue and outlive its outer claim, which is in another.
        let queues = self.shared.queues.locked();
        let claims = queues.iter().map(|queue| queue.held).sum();
        drop(queues);
        (claims, self.shared.jobs.load(Ordering::Acquire))
    }

    /// Records whether the store has answered a job in the background.
    pub(crate) fn heard(&self, answered: bool) {
        if self.shared.fails.load(Ordering::Relaxed) == answered {
            self.shared.fails.store(!answered, Ordering::Relaxed);
        }
    }

    /// Waits for the turn of a job that retries. While the store fails, turns are held through a pause, so that all
    /// jobs together cannot flood it; once it answers, they follow each other without one.
    pub(crate) async fn turn(&self, backoff: &mut Backoff) -> Option<SemaphorePermit<'_>> {
        let turn = self.shared.turns.acquire().await.ok();
        if self.shared.fails.load(Ordering::Relaxed) {
            let clock = &self.shared.clock;
            clock.sleep_until(clock.now() + backoff.retry()).await;
        }
        turn
    }

    /// The number of answers of bodies that the store has not confirmed.
    pub(crate) fn unstored(&self) -> usize {
        self.shared.unstored.load(Ordering::Acquire)
    }

    /// Counts an answer as not stored, for as long as the guard lives.
    pub(crate) fn answered(&self) -> Unstored {
        self.shared.unstored.fetch_add(1, Ordering::AcqRel);
        Unstored(Arc::clone(&self.shared))
    }

    /// Notified when the last claim is settled, or the last job is done.
    pub(crate) fn idle(&self) -> &Notify {
        &self.shared.idle
    }

    /// Runs `job` on the engine's thread, whatever becomes of the caller's runtime.
    pub(crate) fn hand_over(&self, job: impl Future<Output = ()> + Send + 'static) {
        if let Some(thread) = self.shared.thread.get() {
            let guard = JobGuard::new(&self.shared);
            thread.spawn(async move {
                job.await;
                drop(guard);
            });
        }
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.wake.notify_one();
    }
}

impl fmt::Debug for Renewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewer").finish_non_exhaustive()
    }
}

/// An answer that the store has not confirmed.
pub(crate) struct Unstored(Arc<Shared>);

impl Drop for Unstored {
    fn drop(&mut self) {
        self.0.unstored.fetch_sub(1, Ordering::AcqRel);
    }
}

struct JobGuard(Arc<Shared>);

impl JobGuard {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.jobs.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::AcqRel);
        self.0.idle.notify_waiters();
        self.0.wake.notify_one();
    }
}

impl Shared {
    fn queue(&self, lease: &Lease) -> MutexGuard<'_, Queue> {
        lock(self.queues.get(lease.slot.lane))
    }

    /// Queues the lease for renewal at this moment, unless it is no longer registered.
    fn enqueue(&self, lease: &Arc<Lease>, due: Duration) {
        self.insert(self.queue(lease), lease, due);
    }

    fn insert(&self, mut queue: MutexGuard<'_, Queue>, lease: &Arc<Lease>, due: Duration) {
        let slot = &lease.slot;
        let due = nanos(if slot.is_settling() {
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

    /// Unregisters the lease.
    fn leave(&self, lease: &Lease) {
        let mut queue = self.queue(lease);
        queue.held -= 1;
        let due = lease.slot.due.swap(GONE, Ordering::Relaxed);
        let left = queue
            .leases
            .remove(&(due, lease.slot.id.load(Ordering::Relaxed)));
        drop(queue);
        // Not under the lock: dropping the last reference ends more than the lease.
        drop(left);
    }

    /// Whether the body of this lease has not ended.
    fn is_running(&self, lease: &Lease) -> bool {
        let _queue = self.queue(lease);
        lease.slot.due.load(Ordering::Relaxed) != GONE && !lease.slot.is_settling()
    }

    async fn keep(self: Arc<Self>) {
        loop {
            // From here on every registration wakes this loop, until it stores how long it sleeps.
            self.sleeps_until.store(UNTIL_WOKEN, Ordering::SeqCst);
            let (now, mut due, mut next) = (nanos(self.clock.now()), Vec::new(), UNTIL_WOKEN);
            let now = now.saturating_add(self.stepped.swap(0, Ordering::SeqCst));
            for queue in self.queues.all() {
                let mut queue = lock(queue);
                queue.take_due(now, &mut due);
                if let Some(&(moment, _)) = queue.leases.keys().next() {
                    next = next.min(moment);
                }
            }
            for lease in due {
                tokio::spawn(Arc::clone(&self).renew(lease));
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

    async fn renew(self: Arc<Self>, lease: Arc<Lease>) {
        let sent = self.clock.now();
        let tell = |kind: EventKind<'_>| {
            self.observer.observe(&Event {
                operation: lease.key.operation().as_str(),
                key: Some(lease.key.digest()),
                kind,
            });
        };
        let lost = |reason: &str| {
            // Read before the loss is announced, because the body may end at once. The lease is in no queue, but counts
            // as held until then.
            let running = self.is_running(&lease);
            lease.lose();
            if running {
                tell(EventKind::LeaseLost { reason });
            }
        };
        // A body that has ended does not hang: its answer is being stored, and another body would contradict it.
        if sent >= lease.give_up && !lease.slot.is_settling() {
            return lost(
                "the body ran for longer than `max_run`, so its lease is no longer renewed",
            );
        }
        let third = lease.lasts() / 3;
        let (grant, claim) = (lease.grant(), lease.claim());
        let reply = self.store.renew(&lease.key, &claim);
        let next = match deadline(&*self.clock, sent + third, pin!(reply)).await {
            Ok(Ok(RenewReply::Renewed | RenewReply::Reasserted)) => {
                self.outage.hears(sent);
                lease.renewed(sent);
                tell(EventKind::Renewed);
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
                tell(EventKind::RenewalFailed {
                    reason: &error.to_string(),
                });
                self.clock.now() + third / 4
            }
            Err(_) => {
                tell(EventKind::RenewalFailed {
                    reason: "no reply within a third of the lease",
                });
                self.clock.now()
            }
        };
        self.enqueue(&lease, next);
    }
}

impl Queue {
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

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    // Nothing panics while the lock is held; even then the map would still be whole.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(time: Duration) -> u64 {
    // 584 years; a lease is given up long before.
    u64::try_from(time.as_nanos()).map_or(GONE - 1, |nanos| nanos.min(GONE - 1))
}
