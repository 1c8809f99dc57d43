//! What is asked of a record, and what is answered.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::identity::fingerprint::Fingerprint;
use crate::record::{AnswerTypes, Fence, Owner, Record, Unreadable};

/// Who asks for a claim, and for how long.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own, and they go together in every way"
)]
pub struct ClaimRequest {
    /// The attempt that asks. The same while one claim is repeated or polled, and never again after
    /// it was released or completed.
    pub owner: Owner,
    /// What is asked; [`Fingerprint::NONE`] switches the comparison off.
    pub fingerprint: Fingerprint,
    /// Of which types the answers of the function are that asks; [`AnswerTypes::UNKNOWN`] switches the comparison off.
    /// Compared where a body, or a hook, would be granted the claim.
    pub types: AnswerTypes,
    /// Whether the claim is granted under a record of a function whose values have another type. The types are then
    /// those of this claim.
    pub any_type: bool,
    /// How long the claim lasts unless renewed. Whole milliseconds.
    pub lease: Duration,
    /// How long the record outlives its last write. At least twice the lease.
    pub retain: Duration,
    /// Attempts after which nobody is granted the claim; `None` for no limit.
    pub max_attempts: Option<NonZeroU16>,
    /// Whether the caller can find out if an earlier attempt had its effect. It is then asked to,
    /// instead of being refused, or granted the claim, where such an attempt exists. When it has
    /// found out that there was no effect, it claims once more without this.
    pub reconciles: bool,
    /// What the claim needs to be granted.
    pub needs: Needs,
    /// Whether it matters how long a finished answer will still be kept. Where it does not, a store may
    /// answer with less than that, if it is quicker so: it counts from the claim instead of from the
    /// completion.
    pub dated: bool,
}

/// What must stand under a key for a claim to be granted. Where there is no record, the reply to a claim that needs one
/// is [`ClaimReply::Absent`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs {
    /// Nothing: the claim begins a record where there is none.
    #[default]
    Nothing,
    /// A record: the claim goes on with it, and begins none. Calls ask so under a
    /// [former](crate::EngineBuilder::former_digest_key) name.
    Record,
    /// The claim to find out of the same owner, or its claim to run the body: this one asks for the body after it was
    /// found out that nothing landed. A verdict that came too late grants nothing, since another body may have run
    /// meanwhile.
    Verdict,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimReply {
    /// The body is yours to run.
    Granted {
        /// The fence of this attempt.
        fence: Fence,
        /// Which attempt this is, starting at 1.
        attempt: u16,
        /// Whether the record has its fingerprint from this claim: there was no record before, or one without a
        /// fingerprint. `false` for a claim that is sent again.
        fresh: bool,
    },
    /// It is yours to find out whether an earlier attempt had its effect.
    Reconcile {
        /// The fence of this claim.
        fence: Fence,
        /// How many attempts were started before and are not accounted for.
        attempts: u16,
    },
    /// Somebody else's body runs, or somebody finds out about an earlier one.
    Running {
        /// What is left of their lease. Zero for a claim that comes after its own release, which
        /// is granted nothing.
        lease_left: Duration,
    },
    /// It was done before, or its outcome is unknown.
    Done {
        /// The answer; for a lapsed reconciliation, which means unknown, the record as it is.
        record: Record,
        /// How long it will still be kept; or less, unless the request was
        /// [`dated`](ClaimRequest::dated).
        left: Duration,
    },
    /// There is no record, and the claim [needs](ClaimRequest::needs) one. Said by a server that could have written.
    Absent,
    /// The record belongs to a request with another fingerprint.
    Mismatch,
    /// The record belongs to a function whose values have [another type](AnswerTypes::matches), and has no answer.
    OtherType,
    /// No attempts are left.
    Exhausted {
        /// How many were started.
        attempts: u16,
    },
    /// What stands under the key is not ours to touch.
    Unreadable(Unreadable),
}

/// The answer to a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompleteReply {
    /// The answer is stored.
    Stored {
        /// The record was lost, or a later attempt had given it back or let its lease lapse.
        late: bool,
    },
    /// Another attempt stored its answer first; that one counts.
    Adopted {
        /// The answer that counts.
        record: Record,
        /// How long it will still be kept.
        left: Duration,
    },
    /// Another attempt holds the claim now.
    Superseded {
        /// What is left of its lease; zero when that has lapsed and the outcome is no success.
        lease_left: Duration,
    },
    /// The key was claimed by a request with another fingerprint in the meantime.
    Mismatch,
    /// What stands under the key is not ours to touch.
    Unreadable(Unreadable),
}

/// What a release keeps of the attempt that it ends, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remains {
    /// Nothing: the attempt is not counted. Where the record counts no other attempt either, it loses its
    /// fingerprint and the types of its answers, and the next claim brings its own. Only for a claim that was granted
    /// `fresh`.
    Nothing,
    /// The request: the attempt is not counted, and another request is a mismatch.
    Request,
    /// The attempt: it counts as abandoned, and another request is a mismatch.
    Attempt,
}

impl Remains {
    /// Whether the attempt counts.
    #[must_use]
    pub const fn counts(self) -> bool {
        matches!(self, Self::Attempt)
    }
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseReply {
    /// The key is free (now, or since an earlier send of the same release).
    Released,
    /// Somebody else holds the key or finished; nothing was changed.
    Superseded,
    /// There is no record.
    Absent,
    /// What stands under the key is not ours to touch.
    Unreadable(Unreadable),
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenewReply {
    /// The lease starts again.
    Renewed,
    /// There was no record (lost in a failover); the claim was written again.
    Reasserted,
    /// The claim is somebody else's, or over.
    Lost,
    /// What stands under the key is not ours to touch.
    Unreadable(Unreadable),
}

/// The answer to a resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveReply {
    /// The record was replaced (now, or by an earlier send of the same resolution).
    Resolved,
    /// The record is not the one that was seen any more; nothing was changed.
    Changed,
    /// Somebody holds the claim; nothing was changed.
    Running {
        /// What is left of their lease.
        lease_left: Duration,
    },
    /// There is no record.
    Absent,
    /// What stands under the key is not ours to touch.
    Unreadable(Unreadable),
}
