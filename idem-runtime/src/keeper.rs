//! The engine's own thread: it renews leases, and finishes what a vanished caller left behind.
//!
//! A runtime that is blocked by a body would starve the lease of every other body on it; so would
//! a connection whose driver runs there. Renewals therefore run here, and a store makes the
//! connection that they use here.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use crate::clock::{Clock, deadline};
use crate::lease::Lease;
use crate::observer::{Event, EventKind, Observer};
use crate::store::Store;
use crate::transition::RenewReply;

pub(crate) struct Keeper {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    state: Mutex<State>,
    wake: Notify,
    thread: OnceLock<Handle>,
    /// Jobs of vanished callers that are not finished yet.
    jobs: AtomicUsize,
    /// Told when nothing is left to do.
    idle: Notify,
}

#[derive(Default)]
struct State {
    leases: HashMap<u64, Entry>,
    /// When each lease is to be renewed; a lease that is being renewed right now, or is lost, is not
    /// in it.
    queue: BTreeSet<(Duration, u64)>,
    next_id: u64,
    /// Until when the thread sleeps. Claims that end sooner than a third of their lease, nearly
    /// all of them, never wake it.
    sleeps_until: Option<Duration>,
    closed: bool,
}

struct Entry {
    lease: Arc<Lease>,
    due: Option<Duration>,
    /// The body has ended. A renewal that finds the claim gone then overtook its completion, or
    /// the completion will find the same and say what it means.
    settling: bool,
}

/// A registered lease: renewed until this is dropped.
pub(crate) struct Renewal {
    pub(crate) lease: Arc<Lease>,
    shared: Arc<Shared>,
    id: u64,
}

impl Keeper {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                store,
                clock,
                observer,
                state: Mutex::default(),
                wake: Notify::new(),
                thread: OnceLock::new(),
                jobs: AtomicUsize::new(0),
                idle: Notify::new(),
            }),
        }
    }

    /// Makes sure that the thread runs. Nothing may be claimed without it.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        if self.shared.thread.get().is_some() {
            return Ok(());
        }
        // Two callers may come here at once; the state's lock lets one of them start the thread.
        let _state = self.shared.lock();
        if self.shared.thread.get().is_some() {
            return Ok(());
        }
        // Made on its thread: a runtime must not be dropped on another one's, should the thread fail.
        let (tell, told) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("idem-keeper".to_owned())
            .spawn(
                move || match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => {
                        // Whoever started this thread waits for it.
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

    /// Renews the lease every third of it, beginning a third after `granted`.
    pub(crate) fn register(&self, lease: Arc<Lease>, granted: Duration) -> Renewal {
        let due = granted + lease.lasts / 3;
        let mut state = self.shared.lock();
        state.next_id += 1;
        let id = state.next_id;
        state.queue.insert((due, id));
        state.leases.insert(
            id,
            Entry {
                lease: Arc::clone(&lease),
                due: Some(due),
                settling: false,
            },
        );
        let sooner = state.sleeps_until.is_none_or(|until| due < until);
        drop(state);
        if sooner {
            self.shared.wake.notify_one();
        }
        Renewal {
            lease,
            shared: Arc::clone(&self.shared),
            id,
        }
    }

    /// Runs something on the engine's thread that nobody has to wait for when the engine goes.
    pub(crate) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        if let Some(thread) = self.shared.thread.get() {
            thread.spawn(job);
        }
    }

    /// How many claims are held, and how many jobs of vanished callers are not finished.
    pub(crate) fn busy(&self) -> (usize, usize) {
        let claims = self.shared.lock().leases.len();
        (claims, self.shared.jobs.load(Ordering::Acquire))
    }

    /// Told when the last claim is settled, or the last job is done.
    pub(crate) fn idle(&self) -> &Notify {
        &self.shared.idle
    }

    /// Runs `job` on the engine's thread, whatever becomes of the runtime that the caller is on.
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

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_one();
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
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

impl Drop for Renewal {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(Entry { due: Some(due), .. }) = state.leases.remove(&self.id) {
            state.queue.remove(&(due, self.id));
        }
        let last = state.leases.is_empty();
        // The thread may be asleep until this lease is due, with nothing left to do.
        let closed = state.closed;
        drop(state);
        if closed {
            self.shared.wake.notify_one();
        }
        if last {
            self.shared.idle.notify_waiters();
        }
        // Whoever waited for this claim and was not told anything asks the store.
        self.lease.settled(None);
    }
}

impl Renewal {
    /// The body has ended; its lease is renewed until the outcome is settled.
    pub(crate) fn settle(&self) {
        if let Some(entry) = self.shared.lock().leases.get_mut(&self.id) {
            entry.settling = true;
        }
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; were it to, the maps would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keep(self: Arc<Self>) {
        loop {
            let now = self.clock.now();
            let (due, next, closed) = {
                let mut state = self.lock();
                let due = state.take_due(now);
                let next = state.queue.first().map(|&(moment, _)| moment);
                state.sleeps_until = next;
                (due, next, state.closed)
            };
            for (id, lease) in due {
                tokio::spawn(Arc::clone(&self).renew(id, lease));
            }
            if closed && next.is_none() && self.jobs.load(Ordering::Acquire) == 0 {
                return;
            }
            let woken = self.wake.notified();
            match next {
                Some(moment) => {
                    // Both ways of waking mean the same: look again.
                    let _ = deadline(&*self.clock, moment, woken).await;
                }
                None => woken.await,
            }
        }
    }

    async fn renew(self: Arc<Self>, id: u64, lease: Arc<Lease>) {
        let sent = self.clock.now();
        let tell = |kind: EventKind<'_>| {
            self.observer.observe(&Event {
                operation: lease.key.operation().as_str(),
                key: Some(lease.key.digest()),
                kind,
            });
        };
        let lost = |reason: &str| {
            // Looked at before: told of the loss, the body may end at once. In the queue no more, the
            // lease counts as busy until then.
            let running = self.lock().is_running(id);
            lease.lose();
            if running {
                tell(EventKind::LeaseLost { reason });
            }
        };
        if sent >= lease.give_up {
            return lost(
                "the body ran for longer than `max_run`, so its lease is no longer renewed",
            );
        }
        let third = lease.lasts / 3;
        let (grant, claim) = (lease.grant(), lease.claim());
        let reply = self.store.renew(&lease.key, &claim);
        let next = match deadline(&*self.clock, sent + third, reply).await {
            Ok(Ok(RenewReply::Renewed | RenewReply::Reasserted)) => {
                lease.renewed(sent);
                tell(EventKind::Renewed);
                sent + third
            }
            // Said of a claim that was granted anew since.
            Ok(Ok(RenewReply::Lost | RenewReply::Unreadable(_))) if lease.grant() != grant => sent,
            Ok(Ok(RenewReply::Lost)) => {
                return lost("another attempt holds the claim or has finished");
            }
            Ok(Ok(RenewReply::Unreadable(error))) => return lost(&error.to_string()),
            // No reply yet: again, and sooner than a third of the lease, so that several tries fit
            // into what is left of it. Even a lapsed lease is ours until somebody takes it.
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
        let mut state = self.lock();
        if let Some(entry) = state.leases.get_mut(&id) {
            entry.due = Some(next);
            state.queue.insert((next, id));
            drop(state);
            self.wake.notify_one();
        }
    }
}

impl State {
    fn take_due(&mut self, now: Duration) -> Vec<(u64, Arc<Lease>)> {
        let mut due = Vec::new();
        while let Some(&(moment, id)) = self.queue.first()
            && moment <= now
        {
            self.queue.pop_first();
            if let Some(entry) = self.leases.get_mut(&id) {
                entry.due = None;
                due.push((id, Arc::clone(&entry.lease)));
            }
        }
        due
    }

    /// Whether the body of this lease has not ended.
    fn is_running(&self, id: u64) -> bool {
        self.leases.get(&id).is_some_and(|entry| !entry.settling)
    }
}
