//! A claim as this process sees it: how long it surely lasts, and whether it is lost.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::env::clock::deadline;
use crate::identity::digest_key::CallName;
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;
use crate::lifecycle::core::Core;
use crate::lifecycle::renewer::Place;
use crate::local::singleflight::{Landing, LocalLease, Ticket};
use crate::policy::Policy;
use crate::record::Header;

/// One claim, shared by the body, whoever settles it, and the thread that renews it.
pub(crate) struct Lease {
    pub(crate) core: Arc<Core>,
    pub(crate) key: RecordKey,
    /// As in [`CallName`].
    plain: Option<Box<KeyDigest>>,
    pub(crate) policy: Policy,
    /// When renewing ends even if the body has not.
    pub(crate) give_up: Duration,
    /// Where it stands among those that are renewed.
    pub(crate) place: Place,
    /// What the record started with when the claim was granted.
    first: Header,
    /// The same since it was granted anew, if it was.
    again: Mutex<Option<Box<Header>>>,
    /// Until when nobody else can have been granted the key, in microseconds of the clock.
    ends: AtomicU64,
    lost: AtomicBool,
    /// The key stays with its request, also if it is given back: another attempt had it for this one, or this
    /// attempt did what another request must not meet.
    bound: AtomicBool,
    /// Grows when the claim is granted anew: what is heard of an older one counts no more.
    grants: AtomicU32,
    told: Notify,
    /// The calls of this process that wait for the answer.
    ticket: Option<Ticket>,
}

impl LocalLease for Lease {
    /// What is left of the lease for sure; zero when it is lost.
    fn remaining(&self) -> Duration {
        if self.is_lost() {
            return Duration::ZERO;
        }
        Duration::from_micros(self.ends.load(Ordering::Acquire))
            .saturating_sub(self.core.clock.now())
    }

    /// Whether a call of this process asks the store about the key. Once the body has ended, the process has an
    /// answer: as long as nobody else is known to hold the key, calls wait for it to be stored.
    fn is_over(&self) -> bool {
        self.is_lost() || (self.remaining().is_zero() && !self.place.is_settling())
    }
}

impl Lease {
    /// The lease of a claim that was sent at `sent`: from then on it lasts, not from the reply.
    pub(crate) fn new(
        core: Arc<Core>,
        CallName { key, plain }: CallName,
        claim: Header,
        fresh: bool,
        policy: Policy,
        sent: Duration,
        ticket: Option<Ticket>,
    ) -> Self {
        Self {
            core,
            key,
            plain,
            give_up: sent + policy.max_run(),
            place: Place::default(),
            first: claim,
            again: Mutex::default(),
            ends: AtomicU64::new(micros(sent + policy.lease)),
            policy,
            lost: AtomicBool::new(false),
            bound: AtomicBool::new(!fresh),
            grants: AtomicU32::new(0),
            told: Notify::new(),
            ticket,
        }
    }

    /// What the keys that its body derives follow from.
    pub(crate) fn plain(&self) -> &KeyDigest {
        self.plain.as_deref().unwrap_or(self.key.digest())
    }

    /// The calls of this process that wait are told where the body runs.
    pub(crate) fn announce(self: &Arc<Self>) {
        if let Some(ticket) = &self.ticket {
            ticket.here(Arc::downgrade(self) as _);
        }
    }

    /// How long the claim lasts from its last renewal.
    pub(crate) fn lasts(&self) -> Duration {
        self.policy.lease
    }

    /// What the record starts with since the claim was granted.
    pub(crate) fn claim(&self) -> Header {
        if self.grant() == 0 {
            return self.first;
        }
        let again = self.again.lock().unwrap_or_else(PoisonError::into_inner);
        again.as_deref().copied().unwrap_or(self.first)
    }

    /// The claim was granted anew, with another header.
    pub(crate) fn regranted(&self, claim: Header, sent: Duration) {
        let mut again = self.again.lock().unwrap_or_else(PoisonError::into_inner);
        *again = Some(Box::new(claim));
        self.bind();
        self.grants.fetch_add(1, Ordering::SeqCst);
        drop(again);
        self.renewed(sent);
    }

    /// The key stays with its request from now on.
    pub(crate) fn bind(&self) {
        self.bound.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound.load(Ordering::Relaxed)
    }

    /// Which grant of the claim this is.
    pub(crate) fn grant(&self) -> u32 {
        self.grants.load(Ordering::SeqCst)
    }

    /// Whether the claim is somebody else's, or is renewed no longer.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// A renewal that was sent at `sent` was accepted.
    pub(crate) fn renewed(&self, sent: Duration) {
        self.ends
            .fetch_max(micros(sent + self.lasts()), Ordering::AcqRel);
    }

    /// The claim is somebody else's, or is renewed no longer.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.told.notify_waiters();
        // Who waits here for an answer of this process may have another's sooner.
        self.ended();
    }

    /// Nobody needs to wait for this claim any more: it has this answer.
    pub(crate) fn landed(&self, landing: impl FnOnce() -> Option<Landing>) {
        if let Some(ticket) = &self.ticket {
            ticket.land(landing);
        }
    }

    /// Nobody needs to wait for this claim any more: whoever does asks the store.
    pub(crate) fn ended(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.give_up();
        }
    }

    /// Waits until a renewal is refused, or the lease has run out unrenewed.
    pub(crate) async fn lost(&self) {
        let clock = &*self.core.clock;
        loop {
            let mut told = pin!(self.told.notified());
            // From here on no message is missed.
            told.as_mut().enable();
            let left = self.remaining();
            if left.is_zero() {
                return;
            }
            // Renewed in the meantime, most likely: the loop looks.
            let _ = deadline(clock, clock.now() + left, told.as_mut()).await;
        }
    }

    /// How long the lease will still be renewed.
    pub(crate) fn run_left(&self) -> Duration {
        self.give_up.saturating_sub(self.core.clock.now())
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key)
            .field("claim", &self.claim())
            .finish_non_exhaustive()
    }
}
