//! How an operation treats its keys: lifetimes, duplicates, attempts.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::record::{AnswerTypes, FOREVER, OutcomeKind, Record, State};

/// The result of a duplicate of a finished call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnDuplicate {
    /// The stored answer: idempotent.
    #[default]
    Replay,
    /// [`ErrorKind::Duplicate`](crate::ErrorKind::Duplicate) with the time that is left: a cool-down.
    Reject,
}

/// The behaviour of a duplicate while the first call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnRunning {
    /// Waits up to this long for the answer, then
    /// [`ErrorKind::Running`](crate::ErrorKind::Running).
    Wait(Duration),
    /// [`ErrorKind::Running`](crate::ErrorKind::Running) at once.
    Reject,
}

/// What becomes of a key whose body was dropped half-way with its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnCancel {
    /// The lease lapses, and then the next call runs the body: an effect that is still under way has
    /// this time to land.
    #[default]
    Hold,
    /// The key is released at once, for bodies whose half-done work is harmless.
    Release,
    /// The outcome is [unknown](crate::ErrorKind::Unknown) until it is settled.
    Unknown,
}

/// What becomes of a key whose body panicked. The attempt counts either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnPanic {
    /// The key is released.
    #[default]
    Release,
    /// The outcome is [unknown](crate::ErrorKind::Unknown) until it is settled.
    Unknown,
}

/// What becomes of a body whose lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnLeaseLost {
    /// It runs on; [`Context::lease_lost`](crate::Context::lease_lost) notifies it.
    #[default]
    Continue,
    /// It is dropped at its next await.
    Cancel,
}

/// What a caller gets for an unconfirmed answer of its body.
///
/// An answer is unconfirmed if the store has not confirmed it within `complete_deadline`. In every case storing goes on
/// in the background, for as long as the answer would be kept and the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnUnconfirmed {
    /// The answer while the lease lasts; [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed) once it has
    /// lapsed by the local clock.
    ///
    /// While the lease lasts no other body can have started. A store that stays away for the rest of the lease, or a
    /// process that dies before the answer is stored, can still lead to another answer later.
    #[default]
    WithinLease,
    /// [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed): a caller gets no unconfirmed answer, and so never one
    /// that differs from a later one.
    Fail,
    /// The answer, whatever has become of the lease. Another caller may have got another one.
    Return,
}

/// What becomes of a call whose store cannot be reached.
///
/// A store that can be reached, and is full, busy or refuses, is no outage: clients can cause that, and a flood must
/// not switch the protection off.
///
/// | the claim | outage |
/// | --- | --- |
/// | nothing listens at the address of the store; its host is not known | yes |
/// | no reply within `claim_deadline`, or the connection is lost again and again; the server starts, stops or fails over (Redis: `LOADING`, `MASTERDOWN`, `CLUSTERDOWN`; PostgreSQL: classes 08 and 57P; MySQL: 1047, 1053, 2000 and more) | yes, if the store has replied to no other claim, renewal or completion of the engine within the last half of `claim_deadline`; else it is busy |
/// | no room: a [`MemoryStore`](crate::store::memory::MemoryStore) at its bounds, Redis at `maxmemory`, a full disk | no |
/// | refused before it was sent, because more claims wait than the store can serve ([`Overloaded`](crate::store::StoreErrorKind::Overloaded)) | no |
/// | too many connections (`maxclients`, `max_connections`, limits of a user), a statement that the server has ended, a busy script | no |
/// | the server only reads (`READONLY`), has too few replicas (`NOREPLICAS`, `Durability::Replicated`), cannot write its disk (`MISCONF`) | no |
/// | another transaction holds the record or the file, or collides with the claim | no |
/// | wrong password, missing right, missing table, a TLS certificate that is not accepted | no |
/// | a record that is too large or cannot be read; a reply that is none of the protocol | no |
/// | this process has no thread, memory, file or port left | no |
/// | a store grants claims only after their lease is over | no |
///
/// Whether a store without a reply is out of reach or busy cannot be determined for certain. One so busy that it
/// replies to nothing of this engine for half of `claim_deadline` counts as out of reach; and one node of a Redis
/// cluster that falls silent counts as busy while the others reply. Of a store of your own, errors of kind
/// [`Unavailable`](crate::store::StoreErrorKind::Unavailable) count as no reply unless they are
/// [`answered`](crate::store::StoreError::answered) or [`unreachable`](crate::store::StoreError::unreachable).
///
/// An expired one-time token starts nothing in an outage either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnOutage {
    /// It fails with [`ErrorKind::StoreUnavailable`](crate::ErrorKind::StoreUnavailable).
    #[default]
    Fail,
    /// Its body runs without any protection, and the observer is notified.
    Run,
}

/// What a call gets if the record's function has answers of another type.
///
/// Every record carries type tags of the answers of the function that claimed it last: of the value, and of the kept
/// error; see [`Replay`](crate::Replay) for the names that are compared. A function that shares the `op` by mistake, or
/// an earlier version of this one, has another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnOtherType {
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType): its answer is not read, and nothing runs.
    #[default]
    Reject,
    /// The call goes on: an answer is read as the type of this function, and a key without one is taken over. For a
    /// type that got another name, or became another, and reads earlier stored answers.
    Accept,
}

/// The settings of one operation. [`Default`] matches the attribute's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) ttl: Duration,
    pub(crate) error_ttl: Option<Duration>,
    pub(crate) lease: Duration,
    pub(crate) on_duplicate: OnDuplicate,
    pub(crate) on_running: Option<OnRunning>,
    pub(crate) on_cancel: OnCancel,
    pub(crate) on_panic: OnPanic,
    pub(crate) on_lease_lost: OnLeaseLost,
    pub(crate) on_unconfirmed: OnUnconfirmed,
    pub(crate) on_outage: OnOutage,
    pub(crate) max_attempts: Option<NonZeroU16>,
    pub(crate) count_errors: bool,
    /// How long a lease is renewed; see [`Policy::max_run`].
    pub(crate) max_run: Option<Duration>,
    pub(crate) on_other_type: OnOtherType,
    /// The types of the call's answers.
    pub(crate) types: AnswerTypes,
    /// The body begins with a reconciliation, where there is an earlier attempt to reconcile.
    pub(crate) reconciles: bool,
    /// The caller may request the age of the answer.
    pub(crate) tells_age: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ttl: Duration::from_hours(24),
            error_ttl: None,
            lease: Duration::from_secs(30),
            on_duplicate: OnDuplicate::Replay,
            on_running: None,
            on_cancel: OnCancel::Hold,
            on_panic: OnPanic::Release,
            on_lease_lost: OnLeaseLost::Continue,
            on_unconfirmed: OnUnconfirmed::WithinLease,
            on_outage: OnOutage::Fail,
            max_attempts: NonZeroU16::new(5),
            count_errors: false,
            max_run: None,
            on_other_type: OnOtherType::Reject,
            types: AnswerTypes::UNKNOWN,
            reconciles: false,
            tells_age: true,
        }
    }
}

/// The bounds of a `ttl`: 1 second to 10 years.
pub(crate) const TTL: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_hours(24 * 3650));
/// The bounds of a `lease`: 100 milliseconds to 24 hours.
pub(crate) const LEASE: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_hours(24));

/// Longer than any process runs. Longer times are cut to this, so that no sum of times overflows.
pub(crate) const LONG: Duration = Duration::from_hours(24 * 3650);

impl Policy {
    /// Checks the bounds, and cuts every duration to whole milliseconds, as a record holds them.
    ///
    /// # Errors
    ///
    /// A sentence that names the setting and its bounds.
    pub(crate) fn checked(mut self) -> Result<Self, String> {
        self.ttl = within("ttl", self.ttl, TTL)?;
        self.error_ttl = match self.error_ttl {
            Some(ttl) => Some(within("error_ttl", ttl, TTL)?),
            None => None,
        };
        self.lease = within("lease", self.lease, LEASE)?;
        self.max_run = self.max_run.map(|time| time.min(LONG));
        Ok(self)
    }

    /// How long a lease is renewed: 15 minutes, or one lease if that is longer, unless it is set.
    pub(crate) fn max_run(&self) -> Duration {
        let default = Duration::from_mins(15);
        self.max_run.unwrap_or(default.max(self.lease))
    }

    /// Keeps every record of the call for at least this long.
    pub(crate) fn for_at_least(mut self, life: Duration) -> Self {
        self.error_ttl = Some(self.error_ttl().max(life));
        self.ttl = self.ttl.max(life);
        self
    }

    /// Makes a policy under which neither a body nor a hook runs.
    pub(crate) fn that_starts_nothing(mut self) -> Self {
        self.on_outage = OnOutage::Fail;
        self.reconciles = false;
        self
    }

    /// Whether the call needs the exact remaining life of a finished answer.
    pub(crate) fn dated(&self) -> bool {
        self.tells_age || self.on_duplicate == OnDuplicate::Reject
    }

    /// Whether the answer of this record may be read as one of the call's.
    pub(crate) fn reads(&self, record: &Record) -> bool {
        let outcome = match record.header.state {
            State::Done { outcome, .. } => outcome,
            _ => OutcomeKind::Unknown,
        };
        self.on_other_type == OnOtherType::Accept || record.header.types.reads(self.types, outcome)
    }

    /// The life of a kept error.
    pub(crate) fn error_ttl(&self) -> Duration {
        self.error_ttl.unwrap_or(self.ttl)
    }

    /// The life of the bookkeeping of an unfinished call: the counter and the fence must outlive
    /// the lease, and an abandoned key stays counted for as long as an answer would be kept.
    pub(crate) fn retain(&self) -> Duration {
        self.ttl.max(self.error_ttl()).max(self.lease * 2)
    }

    /// Whether an attempt that released the key counts. A body that may start only once has started, however it ended.
    pub(crate) fn counts_releases(&self) -> bool {
        self.count_errors || self.max_attempts == Some(NonZeroU16::MIN)
    }

    /// Checks that the store keeps records for ever, if the policy needs that.
    ///
    /// # Errors
    ///
    /// A sentence on what to do.
    pub(crate) fn kept_by(&self, keeps_forever: bool) -> Result<(), String> {
        if self.ttl.max(self.error_ttl()) < FOREVER || keeps_forever {
            return Ok(());
        }
        Err(
            "`ttl = forever` needs a store that keeps records for ever (SQLite, PostgreSQL, MySQL), \
             and this engine's does not; on others a `ttl` is 10 years at most"
                .to_owned(),
        )
    }

    /// How long a duplicate waits. A duplicate that would be refused in the end is refused at once.
    pub(crate) fn wait(&self) -> Duration {
        match (self.on_running, self.on_duplicate) {
            (Some(OnRunning::Wait(time)), _) => time.min(LONG),
            (Some(OnRunning::Reject), _) | (None, OnDuplicate::Reject) => Duration::ZERO,
            (None, OnDuplicate::Replay) => Duration::from_secs(5),
        }
    }
}

fn within(
    name: &str,
    value: Duration,
    (least, most): (Duration, Duration),
) -> Result<Duration, String> {
    if value == FOREVER && (least, most) == TTL {
        return Ok(FOREVER);
    }
    if value < least || value > most {
        return Err(format!(
            "`{name}` is {value:?}; it must be {least:?} to {most:?}"
        ));
    }
    let nanos = value.subsec_nanos();
    Ok(Duration::new(value.as_secs(), nanos - nanos % 1_000_000))
}

/// How many attempts may be abandoned; `None` for any number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts(pub(crate) Option<NonZeroU16>);

/// Settings in which one operation differs from its engine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) ttl: Option<Duration>,
    pub(crate) error_ttl: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) on_duplicate: Option<OnDuplicate>,
    pub(crate) on_running: Option<OnRunning>,
    pub(crate) on_cancel: Option<OnCancel>,
    pub(crate) on_panic: Option<OnPanic>,
    pub(crate) on_lease_lost: Option<OnLeaseLost>,
    pub(crate) on_unconfirmed: Option<OnUnconfirmed>,
    pub(crate) on_outage: Option<OnOutage>,
    pub(crate) max_attempts: Option<Attempts>,
    pub(crate) count_errors: Option<bool>,
    pub(crate) max_run: Option<Duration>,
    pub(crate) on_other_type: Option<OnOtherType>,
    pub(crate) types: AnswerTypes,
    pub(crate) reconciles: bool,
    /// The answer is read as a type that does not report its age.
    pub(crate) ageless: bool,
}

impl Overrides {
    pub(crate) fn over(&self, defaults: &Policy) -> Result<Policy, String> {
        // The defaults were checked when the engine was built.
        let checked = |name, time: Option<Duration>, bounds, default| match time {
            Some(time) => within(name, time, bounds),
            None => Ok(default),
        };
        Ok(Policy {
            ttl: checked("ttl", self.ttl, TTL, defaults.ttl)?,
            error_ttl: match (self.error_ttl, self.ttl) {
                (Some(ttl), _) => Some(within("error_ttl", ttl, TTL)?),
                // An operation's own `ttl` also bounds its errors, unless it sets `error_ttl`.
                (None, Some(_)) => None,
                (None, None) => defaults.error_ttl,
            },
            lease: checked("lease", self.lease, LEASE, defaults.lease)?,
            on_duplicate: self.on_duplicate.unwrap_or(defaults.on_duplicate),
            on_running: self.on_running.or(defaults.on_running),
            on_cancel: self.on_cancel.unwrap_or(defaults.on_cancel),
            on_panic: self.on_panic.unwrap_or(defaults.on_panic),
            on_lease_lost: self.on_lease_lost.unwrap_or(defaults.on_lease_lost),
            on_unconfirmed: self.on_unconfirmed.unwrap_or(defaults.on_unconfirmed),
            on_outage: self.on_outage.unwrap_or(defaults.on_outage),
            max_attempts: match self.max_attempts {
                Some(Attempts(most)) => most,
                None => defaults.max_attempts,
            },
            count_errors: self.count_errors.unwrap_or(defaults.count_errors),
            max_run: match (self.max_run, self.lease) {
                (Some(time), _) => Some(time.min(LONG)),
                // The engine's `max_run` does not cut short an operation's own `lease`.
                (None, Some(lease)) => defaults.max_run.map(|time| time.max(lease)),
                (None, None) => defaults.max_run,
            },
            on_other_type: self.on_other_type.unwrap_or(defaults.on_other_type),
            types: self.types,
            reconciles: self.reconciles,
            tells_age: !self.ageless,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_outlives_twice_the_lease() {
        let policy = Overrides {
            ttl: Some(Duration::from_secs(1)),
            ..Overrides::default()
        }
        .over(&Policy::default())
        .unwrap();
        assert_eq!(policy.retain(), Duration::from_mins(1));
    }

    #[test]
    fn a_setting_out_of_bounds_is_named() {
        let refused = |overrides: Overrides| overrides.over(&Policy::default()).unwrap_err();
        let zero = Some(Duration::ZERO);
        let message = refused(Overrides {
            lease: zero,
            ..Overrides::default()
        });
        assert_eq!(message, "`lease` is 0ns; it must be 100ms to 86400s");
        assert!(
            refused(Overrides {
                error_ttl: zero,
                ..Overrides::default()
            })
            .starts_with("`error_ttl`")
        );
    }

    #[test]
    fn a_time_is_cut_to_what_a_record_holds() {
        let overrides = Overrides {
            ttl: Some(Duration::new(7, 1_999_999)),
            ..Overrides::default()
        };
        let policy = overrides.over(&Policy::default()).unwrap();
        assert_eq!(policy.ttl, Duration::from_millis(7_001));
    }

    #[test]
    fn a_cool_down_does_not_wait_unless_told_to() {
        let mut policy = Policy {
            on_duplicate: OnDuplicate::Reject,
            ..Policy::default()
        };
        assert_eq!(policy.wait(), Duration::ZERO);
        policy.on_running = Some(OnRunning::Wait(Duration::from_secs(1)));
        assert_eq!(policy.wait(), Duration::from_secs(1));
    }
}
