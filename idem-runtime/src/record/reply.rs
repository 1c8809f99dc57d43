//! Requests on a record, and the replies to them.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::identity::fingerprint::Fingerprint;
use crate::record::{AnswerTypes, Fence, Header, Journal, Owner, Record, State, Unreadable};

/// A request for a claim.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own, and they go together in every way"
)]
pub struct ClaimRequest {
    /// The attempt that claims. The same while one claim is repeated or polled, and never again after it was released
    /// or completed.
    pub owner: Owner,
    /// The fingerprint of the request; [`Fingerprint::NONE`] switches the comparison off.
    pub fingerprint: Fingerprint,
    /// The types of the claiming function's answers; [`AnswerTypes::UNKNOWN`] switches the comparison off.
    /// Compared where a body, or a hook, would be granted the claim.
    pub types: AnswerTypes,
    /// Whether the claim is granted if the record's values have another type. The types are then those of this claim.
    pub any_type: bool,
    /// How long the claim lasts unless renewed. Whole milliseconds.
    pub lease: Duration,
    /// How long the record outlives its last write. At least twice the lease.
    pub retain: Duration,
    /// Attempts after which no caller is granted the claim; `None` for no limit.
    pub max_attempts: Option<NonZeroU16>,
    /// Whether the caller has a hook for an earlier attempt's effect. It then gets the claim to do so, instead of a
    /// refusal or the claim to run, where such an attempt exists. After the verdict that there was no effect, it claims
    /// once more without this.
    pub reconciles: bool,
    /// The record that the claim needs to be granted.
    pub needs: Needs,
    /// Whether the remaining life of a finished answer must be exact. Otherwise a store may reply with less, if that is
    /// quicker: it counts from the claim instead of from the completion.
    pub dated: bool,
    /// Whether the claim records that the one before it has [lapsed](crate::admin::AttemptEnd::Lapsed).
    pub records_attempts: bool,
}

impl ClaimRequest {
    /// A dated claim without limits on request, type or attempts.
    #[must_use]
    pub const fn new(owner: Owner, lease: Duration, retain: Duration) -> Self {
        Self {
            owner,
            fingerprint: Fingerprint::NONE,
            types: AnswerTypes::UNKNOWN,
            any_type: false,
            lease,
            retain,
            max_attempts: None,
            reconciles: false,
            needs: Needs::Nothing,
            dated: true,
            records_attempts: false,
        }
    }

    /// The header of the record of this claim, once it is granted.
    pub(crate) const fn granted(&self, state: State, fence: Fence, attempts: u16) -> Header {
        Header {
            attempts,
            fingerprint: self.fingerprint,
            types: self.types,
            ..Header::new(state, self.owner, fence, self.retain)
        }
    }
}

/// The stored record that a claim needs to be granted.
///
/// Where there is no record, the reply to a claim that needs one is [`ClaimReply::Absent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs {
    /// Nothing: the claim begins a record where there is none.
    Nothing,
    /// A record: the claim continues it, and begins none. Calls claim so under a
    /// [former](crate::EngineBuilder::former_digest_key) name.
    Record,
    /// A claim of the same owner, to reconcile or run: this one claims the body after the verdict that nothing landed.
    /// A verdict that came too late grants nothing, since another body may have run meanwhile.
    Verdict,
}

/// The reply to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimReply {
    /// The caller runs the body.
    Granted {
        /// The fencing token of this attempt.
        fence: Fence,
        /// The number of this attempt, starting at 1.
        attempt: u16,
        /// Whether the record has its fingerprint from this claim: there was no record before, or one without a
        /// fingerprint. `false` for a claim that is sent again.
        fresh: bool,
        /// The steps of earlier attempts, and the recorded attempts.
        journal: Journal,
    },
    /// The caller finds out whether an earlier attempt had its effect.
    Reconcile {
        /// The fencing token of this claim.
        fence: Fence,
        /// Earlier attempts that are not accounted for.
        attempts: u16,
        /// The steps of those attempts.
        journal: Journal,
    },
    /// Another attempt holds the claim: its body runs, or it reconciles an earlier one.
    Running {
        /// The rest of its lease. Zero for a claim that is granted nothing where no lease runs: a claim that arrives
        /// after its own release, and a claim that needs a verdict and whose owner does not hold the claim.
        lease_left: Duration,
    },
    /// The call was done before, or its outcome is unknown.
    Done {
        /// The answer; for a lapsed reconciliation, which means unknown, the record as it is.
        record: Record,
        /// How long it will still be kept; or less, unless the request was
        /// [`dated`](ClaimRequest::dated).
        left: Duration,
    },
    /// There is no record, and the claim [needs](ClaimRequest::needs) one. Only a server that could have written
    /// replies this.
    Absent,
    /// The record belongs to a request with another fingerprint.
    Mismatch,
    /// The record has no answer and [another type](AnswerTypes::matches).
    OtherType,
    /// No attempts are left.
    Exhausted {
        /// The number of started attempts.
        attempts: u16,
    },
    /// The key holds something unreadable, which is never changed.
    Unreadable(Unreadable),
}

/// The reply to a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompleteReply {
    /// The answer is stored.
    Stored {
        /// Whether the record was lost, released later, or had lapsed.
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
        /// The rest of its lease; zero when that has lapsed and the outcome is no success.
        lease_left: Duration,
    },
    /// A request with another fingerprint has claimed the key.
    Mismatch,
    /// The key holds something unreadable, which is never changed.
    Unreadable(Unreadable),
}

/// The remains of an ended attempt, from least to most.
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

/// The reply to a release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseReply {
    /// The key is free, now or since an earlier send.
    Released,
    /// Another attempt holds the key or has finished; nothing was changed.
    Superseded,
    /// There is no record.
    Absent,
    /// The key holds something unreadable, which is never changed.
    Unreadable(Unreadable),
}

/// The reply to a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenewReply {
    /// The lease starts again.
    Renewed,
    /// There was no record (lost in a failover); the claim was written again.
    Reasserted,
    /// Another attempt has the claim, or the claim is over.
    Lost,
    /// The key holds something unreadable, which is never changed.
    Unreadable(Unreadable),
}

/// The reply to an append.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppendReply {
    /// The record has the whole journal, and the lease starts again.
    Appended,
    /// There was no record (lost in a failover); the claim was written again, with the whole journal.
    Reasserted,
    /// Another attempt has the claim, or the claim is over; nothing was changed.
    Lost,
    /// The store keeps no journals; nothing was changed.
    Unsupported,
    /// The key holds something unreadable, which is never changed.
    Unreadable(Unreadable),
}

/// The reply to a resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveReply {
    /// The record was replaced, now or by an earlier send.
    Resolved,
    /// The record has changed since it was read; nothing was changed.
    Changed,
    /// The claim is held; nothing was changed.
    Running {
        /// The rest of its lease.
        lease_left: Duration,
    },
    /// There is no record.
    Absent,
    /// The key holds something unreadable, which is never changed.
    Unreadable(Unreadable),
}

/// The answer to a read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadReply {
    /// There is no record.
    Absent,
    /// There is a record.
    Found {
        /// The record.
        record: Record,
        /// How long it will still be kept.
        left: Duration,
    },
    /// The value under the key is not a record of this version.
    Unreadable(Unreadable),
}
