//! The states of a call after its admission, and after the reply of the store.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::error::Error;
use crate::identity::digest_key::CallName;
use crate::lifecycle::claim::Claim;
use crate::lifecycle::in_flight::Unleased;
use crate::lifecycle::reconcile::pending::PendingReconcile;
use crate::lifecycle::run_limit::Gate;
use crate::outcome::stored::StoredAnswer;
use crate::policy::EffectivePolicy;

/// The request of one call, ready to claim.
pub(crate) struct CallRequest {
    pub(crate) name: CallName,
    /// Its former name, under which the record is looked up first; that look-up begins none.
    pub(crate) former: Option<Box<CallName>>,
    pub(crate) policy: EffectivePolicy,
    /// Its token has expired: it gets an existing answer, and starts nothing.
    pub(crate) expired: bool,
    /// Limits that it passes before its claim, besides those of the engine.
    pub(crate) gate: Option<Box<Gate>>,
}

/// The result of admission.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is read at once"
)]
pub(crate) enum CallAdmission {
    /// The call has its answer.
    Replay(StoredAnswer),
    /// The store has to be queried.
    Acquire(Pending),
}

/// The answer of a call that runs nothing: a replay, or a refusal.
pub(crate) type Answered = Result<StoredAnswer, Error>;

/// The future of a call that queries the store. Boxed: it is much larger than the body of most calls, which the
/// caller holds besides.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The reply of the store, or of another call.
pub(crate) struct Reply {
    pub(crate) start: Result<Start, Error>,
    /// The time for which the call waited for the body of another; zero where no observer wants to know of calls.
    pub(crate) waited: Duration,
}

/// The start of a call after the reply of the store.
pub(crate) enum Start {
    /// It runs the body, and reconciles an earlier attempt first if there is one.
    Run(Claim, Option<PendingReconcile>),
    /// It runs the body without protection.
    Unprotected(Box<Unleased>),
    /// It has its answer.
    Replay(StoredAnswer),
}

/// The result of beginning a call.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, read at once")]
#[non_exhaustive]
pub enum Acquired {
    /// The caller runs the body.
    Run(Claim),
    /// The call was done before; this is its answer.
    Replay(StoredAnswer),
}
