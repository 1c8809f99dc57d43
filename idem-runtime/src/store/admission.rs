//! How long a claim may wait before it is sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The patience of a claim, and whether the claim was sent.
///
/// A store that queues claims, for example for a connection, refuses the claims that it cannot send in time, with
/// [`StoreError::overloaded`](super::StoreError::overloaded), and calls [`sent`](Self::sent) for the others right
/// before it sends them. A claim that was never sent needs no release: under overload that halves the work.
#[derive(Debug)]
pub struct Admission {
    patience: Duration,
    /// Microseconds that the claim waited before it was sent, or `NOT_SENT`.
    sent: AtomicU64,
}

const NOT_SENT: u64 = u64::MAX;

impl Admission {
    /// A claim that must have its reply within `patience`.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self {
            patience,
            sent: AtomicU64::new(NOT_SENT),
        }
    }

    /// How long the caller waits for the reply, from the call on.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The claim is sent now, without having waited. From here on the server may grant it.
    pub fn sent(&self) {
        self.sent_after(Duration::ZERO);
    }

    /// The claim is sent now, after having waited for so long.
    ///
    /// Its lease begins here. Only the first call counts.
    pub fn sent_after(&self, waited: Duration) {
        let waited =
            u64::try_from(waited.as_micros()).map_or(NOT_SENT - 1, |us| us.min(NOT_SENT - 1));
        // An earlier value stays.
        let _ = (self.sent).compare_exchange(NOT_SENT, waited, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether the server may have granted the claim.
    #[must_use]
    pub(crate) fn was_sent(&self) -> bool {
        self.waited().is_some()
    }

    /// How long the claim waited before it was sent, if it was.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        let waited = self.sent.load(Ordering::Acquire);
        (waited != NOT_SENT).then(|| Duration::from_micros(waited))
    }
}
