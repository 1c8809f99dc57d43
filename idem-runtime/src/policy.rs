//! How an operation treats its keys: lives, duplicates, attempts.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::identity::fingerprint::Fingerprint;
use crate::outcome::chosen_life::ChosenLife;
use crate::record::label::KeyLabel;
use crate::record::transition::ClaimRequest;
use crate::record::{AnswerTypes, FOREVER, OutcomeKind, Owner, Record, State};

/// Passes every setting to the macro `$then`, after `$with`: documentation, name, type, and default.
///
/// The one list of them. [`Policy`] and every builder take their setters from it.
///
/// The other places of a new setting (also in CONTRIBUTING.md):
///
/// - its use: a method of `EffectivePolicy` below, where the value is not read as it is;
/// - a new enum: exported by `lib.rs`, and by `__private.rs` for the attribute; its type is imported where `settings!`
///   expands: `engine/builder.rs`, `call/builder.rs`, `call/description.rs`, `http/layer.rs`;
/// - the attribute: `NAMES` and `WORDS`, or a field of `Args`, in `idem-macros/src/args.rs`; contradictions with other
///   arguments in `plan/contradictions.rs`; the golden file `every_setting.rs`;
/// - the manual: `docs/idempotent.md` and `docs/guide/arguments.md`; tests in `tests/semantics` and `tests/ui`.
macro_rules! settings {
    ($then:ident! { $($with:tt)* }) => {
        $then! {
            $($with)*
            /// The life of a stored answer; 1 s to 10 years, or [`FOREVER`](crate::FOREVER). Default 24 h.
            ttl: Duration = |_| Duration::from_secs(24 * 60 * 60);

            /// The life of a kept business error; the bounds of [`ttl`](Self::ttl). Default that of a value.
            ///
            /// An operation that sets its own `ttl` and no `error_ttl` keeps its errors as long as its values, whatever
            /// the engine has.
            error_ttl: Duration = |policy| policy.ttl();

            /// The life of a claim unless renewed; 100 ms to 24 h. Default 30 s.
            ///
            /// The lease is renewed every third of this, so it is the time after which a crash is noticed; the limit of
            /// the body is [`max_run`](Self::max_run). It is measured by the clock of the store's server: keep it well
            /// above the [steps](crate::store#the-clock-of-the-server) that this clock can make.
            lease: Duration = |_| Duration::from_secs(30);

            /// The time for which the lease of a running body is renewed. Default 15 min, or the lease where that is
            /// longer.
            ///
            /// A body that runs for longer loses its lease, and then a duplicate runs beside it: set it above the
            /// longest body. The engine's is never shorter than an operation's own `lease`.
            max_run: Duration = |policy| Duration::from_secs(15 * 60).max(policy.lease());

            /// Reply to a duplicate of a finished call. Default [`OnDuplicate::Replay`](crate::OnDuplicate::Replay).
            on_duplicate: OnDuplicate = |_| OnDuplicate::Replay;

            /// Behaviour of a duplicate while the first call runs.
            ///
            /// Default [`OnRunning::Wait`](crate::OnRunning::Wait) for 5 s, or
            /// [`OnRunning::Reject`](crate::OnRunning::Reject) where duplicates are refused in the end anyway.
            on_running: OnRunning = |policy| match policy.on_duplicate() {
                OnDuplicate::Replay => OnRunning::Wait(Duration::from_secs(5)),
                OnDuplicate::Reject => OnRunning::Reject,
            };

            /// Treatment of a key whose body was dropped half-way with its caller. Default
            /// [`OnCancel::Hold`](crate::OnCancel::Hold).
            on_cancel: OnCancel = |_| OnCancel::Hold;

            /// Treatment of a key whose body panicked. Default [`OnPanic::Release`](crate::OnPanic::Release).
            on_panic: OnPanic = |_| OnPanic::Release;

            /// Treatment of a body whose lease is lost. Default
            /// [`OnLeaseLost::Continue`](crate::OnLeaseLost::Continue).
            on_lease_lost: OnLeaseLost = |_| OnLeaseLost::Continue;

            /// Reply to a caller whose answer the store has not confirmed. Default
            /// [`OnUnconfirmed::WithinLease`](crate::OnUnconfirmed::WithinLease).
            on_unconfirmed: OnUnconfirmed = |_| OnUnconfirmed::WithinLease;

            /// Behaviour while the store cannot be reached. Default [`OnOutage::Fail`](crate::OnOutage::Fail).
            on_outage: OnOutage = |_| OnOutage::Fail;

            /// Reply to a record whose function has other answer types. Default
            /// [`OnOtherType::Reject`](crate::OnOtherType::Reject).
            on_other_type: OnOtherType = |_| OnOtherType::Reject;

            /// The limit of abandoned attempts (crashed, panicked, dropped); `None` for no limit. Default 5.
            ///
            /// After that the key answers [`ErrorKind::Exhausted`](crate::ErrorKind::Exhausted). 1: a body starts at
            /// most once, and then an attempt that ended with a system error counts as well.
            max_attempts: Option<NonZeroU16> = |_| NonZeroU16::new(5);

            /// Whether a released system error counts towards [`max_attempts`](Self::max_attempts).
            ///
            /// Default no: a hundred retries while a database is down should not use a key up.
            count_errors: bool = |_| false;
        }
    };
}
pub(crate) use settings;

/// Setters of all settings for a builder that consumes itself; `|it| place` is where it keeps its [`Policy`].
macro_rules! policy_setters {
    (|$it:ident| $policy:expr; $($(#[$doc:meta])* $name:ident: $ty:ty = $default:expr;)*) => {
        $($(#[$doc])*
        pub fn $name(self, $name: $ty) -> Self {
            let mut $it = self;
            $policy.$name = Some($name);
            $it
        })*

        /// All settings that the policy has; the others stay as they are.
        pub fn policy(self, policy: crate::Policy) -> Self {
            let mut $it = self;
            $policy = policy.or($policy);
            $it
        }
    };
}
pub(crate) use policy_setters;

/// The result of a duplicate of a finished call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// The stored answer: idempotent.
    Replay,
    /// [`ErrorKind::Duplicate`](crate::ErrorKind::Duplicate) with the time that is left: a cool-down.
    Reject,
}

/// The behaviour of a duplicate while the first call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnRunning {
    /// Waits up to this long for the answer, then
    /// [`ErrorKind::Running`](crate::ErrorKind::Running).
    Wait(Duration),
    /// [`ErrorKind::Running`](crate::ErrorKind::Running) at once.
    Reject,
}

/// The fate of a key whose body was dropped with its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnCancel {
    /// The lease lapses, and then the next call runs the body: an effect that is still under way has
    /// this time to land.
    Hold,
    /// Released at once, for bodies whose half-done work is harmless.
    Release,
    /// The outcome is [unknown](crate::ErrorKind::Unknown) until it is settled.
    Unknown,
}

/// What becomes of a key whose body panicked. The attempt counts either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// The key is released.
    Release,
    /// The outcome is [unknown](crate::ErrorKind::Unknown) until it is settled.
    Unknown,
}

/// What becomes of a body whose lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLeaseLost {
    /// It runs on; [`Context::lease_lost`](crate::Context::lease_lost) notifies it.
    Continue,
    /// It is dropped at its next await.
    Cancel,
}

/// The reply to a caller whose body's answer is unconfirmed.
///
/// An answer is unconfirmed if the store has not confirmed it within `complete_deadline`. In every case storing goes on
/// in the background, for as long as the answer would be kept and the process lives.
///
/// It is unconfirmed as well if its record was lost, and the key has another record that it must not replace: of other
/// arguments, or unreadable. Such an answer is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnconfirmed {
    /// The answer while the lease lasts; [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed) once it has
    /// lapsed by the local clock.
    ///
    /// While the lease lasts no other body can have started. A store that stays away for the rest of the lease, or a
    /// process that dies before the answer is stored, can still lead to another answer later.
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
/// An expired one-time token starts nothing in an outage either, nor does a call with `max_attempts` of 1: it takes no
/// [`Run`](Self::Run) of its engine, and one of its own is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOutage {
    /// It fails with [`ErrorKind::StoreUnavailable`](crate::ErrorKind::StoreUnavailable).
    Fail,
    /// Its body runs without any protection, and the observer is notified.
    Run,
}

/// The reply if the record's function has answers of another type.
///
/// Every record carries type tags of the answers of the function that claimed it last: of the value, and of the kept
/// error; see [`Replay`](crate::codec::Replay) for the names that are compared. A function that shares the `op` by mistake, or
/// an earlier version of this one, has another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOtherType {
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType): its answer is not read, and nothing runs.
    Reject,
    /// The call goes on: an answer is read as the type of this function, and a key without one is taken over. For a
    /// type that got another name, or became another, and reads earlier stored answers.
    Accept,
}

macro_rules! define_policy {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $default:expr;)*) => {
        /// The settings of an operation.
        ///
        /// An open setting of an operation is that of its engine, and an open setting of the engine has the default
        /// named here. Not the engine's are `error_ttl` where the operation has a `ttl`, and `on_panic`,
        /// `on_duplicate` and `count_errors` of an HTTP layer, which says its own defaults. Every builder has the same setters, and `policy` to set several at once:
        ///
        /// ```
        /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        /// use idem_runtime::{Engine, Error, FOREVER, OnUnconfirmed, Policy, store::memory::MemoryStore};
        /// use std::time::Duration;
        ///
        /// const MONEY: Policy = Policy::new()
        ///     .ttl(Duration::from_secs(30 * 24 * 60 * 60))
        ///     .max_run(Duration::from_secs(2 * 60))
        ///     .on_unconfirmed(OnUnconfirmed::Fail);
        ///
        /// let engine = Engine::new(MemoryStore::new());
        /// let pay = engine.operation("payments.pay").key("order-7").policy(MONEY);
        /// let paid: Result<u32, Error> = pay.run(|_| async { Ok(1_250) }).await;
        /// assert_eq!(paid, Ok(1_250));
        /// # });
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        #[must_use = "a policy has an effect once a builder has it"]
        pub struct Policy {
            $(pub(crate) $name: Option<$ty>,)*
        }

        impl Policy {
            /// A policy that leaves every setting open.
            pub const fn new() -> Self {
                Self { $($name: None,)* }
            }

            $($(#[$doc])*
            pub const fn $name(mut self, $name: $ty) -> Self {
                self.$name = Some($name);
                self
            })*

            /// These settings, and `other`'s where they are open.
            pub const fn or(self, other: Self) -> Self {
                Self { $($name: if self.$name.is_some() { self.$name } else { other.$name },)* }
            }
        }

        impl EffectivePolicy {
            $(pub(crate) fn $name(&self) -> $ty {
                let default: fn(&Self) -> $ty = $default;
                self.given.$name.unwrap_or_else(|| default(self))
            })*
        }
    };
}
settings!(define_policy! {});

/// The settings of one call: those of its operation over those of its engine, and the call's own needs.
#[derive(Clone, Debug)]
pub(crate) struct EffectivePolicy {
    given: Policy,
    pub(crate) types: AnswerTypes,
    /// The body begins with a reconciliation of an earlier attempt.
    pub(crate) reconciles: bool,
    /// The caller may request the age of the answer.
    pub(crate) tells_age: bool,
    /// The label of the call's key.
    pub(crate) label: Option<KeyLabel>,
    /// The shortest chosen life, in seconds.
    least_life: u32,
}

/// The bounds of a `ttl`: 1 second to 10 years.
const TTL: (Duration, Duration) = (
    Duration::from_secs(1),
    Duration::from_secs(3650 * 24 * 60 * 60),
);
/// The bounds of a `lease`: 100 milliseconds to 24 hours.
const LEASE: (Duration, Duration) = (
    Duration::from_millis(100),
    Duration::from_secs(24 * 60 * 60),
);

/// Longer than any process runs. Longer times are cut to this, so that no sum of times overflows.
pub(crate) const LONG: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

impl Policy {
    /// Checks the bounds, and cuts durations to whole milliseconds.
    fn checked(mut self) -> Result<Self, String> {
        let checked = |name, time: Option<Duration>, bounds| {
            time.map(|time| within(name, time, bounds)).transpose()
        };
        self.ttl = checked("ttl", self.ttl, TTL)?;
        self.error_ttl = checked("error_ttl", self.error_ttl, TTL)?;
        self.lease = checked("lease", self.lease, LEASE)?;
        self.max_run = self.max_run.map(|time| time.min(LONG));
        Ok(self)
    }
}

impl Policy {
    fn has_one_attempt(&self) -> bool {
        self.max_attempts == Some(Some(NonZeroU16::MIN))
    }

    /// Rejects `max_attempts` of 1 with `on_outage` of `Run`.
    fn check_outage(&self) -> Result<(), String> {
        if self.has_one_attempt() && self.on_outage == Some(OnOutage::Run) {
            let message = "`on_outage` of `Run` starts the body without a check for earlier attempts, which \
                           `max_attempts` of 1 forbids; remove one of the two, or set `on_outage` to `Fail` here";
            return Err(message.to_owned());
        }
        Ok(())
    }
}

impl EffectivePolicy {
    /// The settings of an engine.
    pub(crate) fn of_engine(policy: Policy) -> Result<Self, String> {
        policy.check_outage()?;
        Ok(Self {
            given: policy.checked()?,
            types: AnswerTypes::UNKNOWN,
            reconciles: false,
            tells_age: true,
            label: None,
            least_life: 1,
        })
    }

    /// The settings of a call of this operation in this engine.
    pub(crate) fn of_call(operation: Policy, engine: &Self) -> Result<Self, String> {
        let operation = operation.checked()?;
        let mut defaults = engine.given;
        if operation.ttl.is_some() {
            // An operation's own `ttl` also bounds its errors, unless it sets `error_ttl`.
            defaults.error_ttl = None;
        }
        if let Some(lease) = operation.lease {
            // The engine's `max_run` does not cut short an operation's own `lease`.
            defaults.max_run = defaults.max_run.map(|time| time.max(lease));
        }
        if operation.has_one_attempt() {
            // An outage starts no body that may start only once.
            defaults.on_outage = None;
        }
        let given = operation.or(defaults);
        given.check_outage()?;
        Ok(Self {
            given,
            ..engine.clone()
        })
    }

    /// Keeps every record of the call for at least this long.
    pub(crate) fn for_at_least(mut self, life: Duration) -> Self {
        let seconds = u32::try_from(life.as_secs()).unwrap_or(u32::MAX);
        self.least_life = self.least_life.max(seconds.saturating_add(1));
        self.given.error_ttl = Some(self.error_ttl().max(life));
        self.given.ttl = Some(self.ttl().max(life));
        self
    }

    /// Makes a policy under which neither a body nor a hook runs.
    pub(crate) fn that_starts_nothing(mut self) -> Self {
        self.given.on_outage = Some(OnOutage::Fail);
        self.reconciles = false;
        self
    }

    /// Whether the call needs the exact remaining life of a finished answer.
    pub(crate) fn dated(&self) -> bool {
        self.tells_age || self.on_duplicate() == OnDuplicate::Reject
    }

    /// Whether an answer of another type is read.
    pub(crate) fn reads_any_type(&self) -> bool {
        self.on_other_type() == OnOtherType::Accept
    }

    /// Whether the call may read this record's answer.
    pub(crate) fn reads(&self, record: &Record) -> bool {
        let outcome = match record.header.state {
            State::Done { outcome, .. } => outcome,
            _ => OutcomeKind::Unknown,
        };
        self.reads_any_type() || record.header.types.reads(self.types, outcome)
    }

    /// The life of an outcome. A stored answer may choose one, between the shortest and that of the policy; the trace of
    /// a lost or unknown answer may not.
    pub(crate) fn life_of(&self, outcome: OutcomeKind, chosen: ChosenLife) -> Duration {
        let most = match outcome {
            OutcomeKind::Error => self.error_ttl(),
            _ => self.ttl(),
        };
        match (outcome, chosen) {
            (OutcomeKind::Value | OutcomeKind::Error, ChosenLife::For(life)) if life < most => {
                let least = Duration::from_secs(self.least_life.into());
                whole_millis(life.min(LONG)).max(least).min(most)
            }
            _ => most,
        }
    }

    /// The life of the bookkeeping of an unfinished call: the counter and the fence must outlive
    /// the lease, and an abandoned key stays counted for as long as an answer would be kept.
    pub(crate) fn retain(&self) -> Duration {
        self.ttl().max(self.error_ttl()).max(self.lease() * 2)
    }

    /// Whether an attempt that released the key counts. A body that may start only once has started, however it ended.
    pub(crate) fn counts_releases(&self) -> bool {
        self.count_errors() || self.max_attempts() == Some(NonZeroU16::MIN)
    }

    /// Checks that the store keeps records as long as the policy.
    pub(crate) fn kept_by(&self, keeps_forever: bool) -> Result<(), String> {
        if self.ttl().max(self.error_ttl()) < FOREVER || keeps_forever {
            return Ok(());
        }
        Err(
            "`ttl = forever` needs a store that keeps records for ever (SQLite, PostgreSQL, MySQL), \
             and this engine's does not; on others a `ttl` is 10 years at most"
                .to_owned(),
        )
    }

    /// A claim of the call, of any number of attempts.
    pub(crate) fn claim_request(&self, owner: Owner, fingerprint: Fingerprint) -> ClaimRequest {
        ClaimRequest {
            fingerprint,
            types: self.types,
            any_type: self.reads_any_type(),
            ..ClaimRequest::new(owner, self.lease(), self.retain())
        }
    }

    /// How long a duplicate waits.
    pub(crate) fn wait(&self) -> Duration {
        match self.on_running() {
            OnRunning::Wait(time) => time.min(LONG),
            OnRunning::Reject => Duration::ZERO,
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
    Ok(whole_millis(value))
}

fn whole_millis(value: Duration) -> Duration {
    let nanos = value.subsec_nanos();
    Duration::new(value.as_secs(), nanos - nanos % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(operation: Policy, engine: Policy) -> EffectivePolicy {
        let engine = EffectivePolicy::of_engine(engine).unwrap();
        EffectivePolicy::of_call(operation, &engine).unwrap()
    }

    #[test]
    fn the_record_outlives_twice_the_lease() {
        let policy = call(Policy::new().ttl(Duration::from_secs(1)), Policy::new());
        assert_eq!(policy.retain(), Duration::from_secs(60));
    }

    #[test]
    fn a_time_is_cut_to_what_a_record_holds() {
        let policy = call(
            Policy::new().ttl(Duration::new(7, 1_999_999)),
            Policy::new(),
        );
        assert_eq!(policy.ttl(), Duration::from_millis(7_001));
    }

    #[test]
    fn an_operation_overrides_its_engine_setting_by_setting() {
        let hour = Duration::from_secs(60 * 60);
        let engine = Policy::new().ttl(hour * 2).error_ttl(hour).max_run(hour);
        let plain = call(Policy::new(), engine);
        assert_eq!((plain.ttl(), plain.error_ttl()), (hour * 2, hour));
        // Its own `ttl` is also that of its errors, and its lease is renewed at least once.
        let own = call(Policy::new().ttl(hour * 3).lease(hour * 4), engine);
        assert_eq!((own.ttl(), own.error_ttl()), (hour * 3, hour * 3));
        assert_eq!((own.lease(), own.max_run()), (hour * 4, hour * 4));
        let unlimited = call(Policy::new().max_attempts(None), engine);
        assert_eq!(
            (unlimited.max_attempts(), plain.max_attempts()),
            (None, NonZeroU16::new(5))
        );
    }
}
