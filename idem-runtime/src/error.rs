//! Errors of idem itself, in place of an answer.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// Why a call got neither its body's nor a stored answer.
///
/// Cheap to clone; it serializes (without its source), so that an error enum with a variant
/// `Idem(idem_runtime::Error)` can derive `Serialize` and `Deserialize`.
///
/// No message contains a key, an argument, a stored value or a password.
#[derive(Clone, Serialize, Deserialize)]
pub struct Error(Box<ErrorParts>);

#[derive(Clone, Serialize, Deserialize)]
struct ErrorParts {
    kind: ErrorKind,
    operation: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// The same call fails again until its cause is mended.
    #[serde(default)]
    permanent: bool,
    /// The body has ended with a business error.
    #[serde(default)]
    business: bool,
    /// When to repeat the call, where the kind does not include it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after: Option<Duration>,
    /// The store could not be reached, as far as is known.
    #[serde(skip)]
    outage: bool,
    #[serde(skip)]
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// The answer that the caller would have received.
    #[serde(skip)]
    held: Option<Arc<dyn Any + Send + Sync>>,
    /// Made on first use, by a log or for a client.
    #[serde(skip)]
    instance: OnceLock<String>,
}

/// The kind of an error. More kinds may come; match with a `_` arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The first call of this key is still running. Call again after `retry_after`.
    Running {
        /// The rest of the running call's lease, as the store sees it.
        retry_after: Duration,
    },
    /// The call was done before, and `on_duplicate = reject` refuses repeats.
    Duplicate {
        /// When the stored answer expires and the key is new again; [`FOREVER`](crate::FOREVER): it does not.
        retry_after: Duration,
    },
    /// The key was used before with other arguments. The caller reused a key by mistake.
    ///
    /// A system error of which nothing remains frees the key for other arguments: see `fingerprint` in the manual of
    /// `#[idempotent]`.
    Mismatch,
    /// A body ended, and it is not known whether its effect happened. How an operator settles it:
    /// [`guide::operator`](crate::guide::operator).
    ///
    /// Also while a response of the HTTP layer is streamed: then [`Error::is_retryable`], and the end of the stream makes
    /// the outcome known.
    Unknown {
        /// The moment since which the outcome is unknown, by the local clock: when the body ended, or a reconcile hook
        /// last had no verdict.
        since: SystemTime,
    },
    /// Every attempt of this key was abandoned: it crashed or lost its lease. How an operator settles it:
    /// [`guide::operator`](crate::guide::operator).
    Exhausted {
        /// The number of started attempts.
        attempts: u32,
    },
    /// The call was done, but its answer could not be stored: too large, or not written or not read back by its type.
    NotStored,
    /// The stored answer cannot be read as the function's return type. It is kept, and the body is
    /// not run again.
    Undecodable,
    /// The record belongs to a function whose answers have another type: it shares the `op`, or is an earlier version;
    /// see [`OnOtherType`](crate::OnOtherType). Nothing was run, unless the error says that this body ran and another
    /// attempt has answered the key. Or an operator gave an answer of another type to
    /// [`Entry::resolve`](crate::admin::Entry::resolve), and nothing was changed.
    WrongType,
    /// The key holds something other than a record of a known layout. It is kept, and the body is not run.
    UnknownRecord,
    /// The record is larger than this store reads.
    TooLarge,
    /// The store could not be queried within its deadline, or refused. The body was not run.
    /// [`Error::is_retryable`] distinguishes the two.
    StoreUnavailable,
    /// The transaction (`tx = …`) is over, or must be.
    ///
    /// It collided with another, its connection is lost, an error or a statement ended it, or the answer could not be
    /// stored in it. Nothing of it is kept, unless the body has committed. Roll it back and call again in a new one.
    TransactionAborted,
    /// It is not known whether the transaction of the call was committed: the reply was lost. Call
    /// again: if it was, the answer is replayed, and if not, the body runs.
    CommitUnknown,
    /// The store has not confirmed the answer of this call's body.
    ///
    /// Since the lease has lapsed, or [`OnUnconfirmed::Fail`](crate::OnUnconfirmed::Fail) is set, the answer is not
    /// returned: another attempt may have given another one. Its effect may have happened. Call again with the same
    /// key: the repeat gets the one answer.
    Unconfirmed,
    /// The body of this call called itself with the same key: it would wait for itself.
    Reentered,
    /// The limit of running bodies ([`max_running`](crate::EngineBuilder::max_running)) is reached.
    ///
    /// Nothing was run or claimed. Call again after [`retry_after`](Error::retry_after), which is 1 s; if it goes on,
    /// find out why bodies take so long, or raise the limit.
    TooManyRunning,
    /// A quota of the caller's scope is used up (`IdempotencyLayer::quota`).
    ///
    /// Nothing was run or claimed. Call again after [`retry_after`](Error::retry_after).
    QuotaExceeded,
    /// The engine is being shut down and starts nothing new. Call another instance.
    ShuttingDown,
    /// The record has changed since it was read; nothing was resolved or reset.
    Changed,
    /// The key or scope is empty, too long or not serializable.
    InvalidKey,
    /// The one-time token is invalid, or not for this operation and subject: forged, cut, another user's, or
    /// signed with a secret that this engine does not have. Nothing was run.
    TokenInvalid,
    /// The one-time token has expired and no answer to it is stored. Nothing was run.
    TokenExpired,
    /// The store does not support listings, [steps](crate::step()) or the like.
    Unsupported,
    /// The cursor belongs to another listing or store, or is too old. Begin the listing again.
    InvalidCursor,
    /// A step cannot run as written, and was not started.
    ///
    /// Its name was used before in this attempt, it is inside of another step or outside of a call, or the call has
    /// too many steps. The message says which.
    InvalidStep,
    /// A setting is out of range, or a client's key unscoped.
    InvalidPolicy,
    /// No engine is given, scoped or installed.
    NoEngine,
}

/// The word and the sentence of each kind.
macro_rules! kinds {
    ($($kind:ident $({ $field:ident })? = $word:literal: $text:literal $(, $argument:expr)*;)+) => {
        impl ErrorKind {
            #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "metrics have a place for each"))]
            pub(crate) const WORDS: [&str; 27] = [$($word),+];

            /// One word for the kind, such as `running` or `store-unavailable`: stable, for labels of metrics and for logs.
            #[must_use]
            pub const fn as_str(&self) -> &'static str {
                match self {
                    $(Self::$kind { .. } => $word,)+
                }
            }

            fn sentence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$kind { $($field,)? .. } => write!(f, $text $(, $argument)*),)+
                }
            }
        }
    };
}

kinds! {
    Running { retry_after } = "running":
        "the first call with this key is still running; call again in {}", Spell(*retry_after);
    Duplicate { retry_after } = "duplicate":
        "already done and repeats are refused; {}", kept_for(*retry_after);
    Mismatch = "mismatch":
        "this key was used before with other arguments; use a new key for a new request";
    Unknown = "unknown":
        "an earlier attempt ended without a known outcome; find out whether its effect happened before anything is repeated";
    Exhausted { attempts } = "exhausted":
        "{attempts} {} abandoned and none is left; find out why {} crashed or lost {} lease",
        if *attempts == 1 { "attempt was" } else { "attempts were" },
        if *attempts == 1 { "it" } else { "they" },
        if *attempts == 1 { "its" } else { "their" };
    NotStored = "not-stored":
        "done before, but its answer was not kept: it was too large, or its type did not write it or read it back";
    Undecodable = "undecodable":
        "the stored answer cannot be read as this function's return type; it is kept and nothing is run again; deploy a \
         version that reads it";
    WrongType = "wrong-type":
        "the record under this key is for answers of another type";
    UnknownRecord = "unknown-record":
        "the store holds something under this key that this version does not understand; it is left alone and nothing is \
         run; look for a newer version of idem or another program that uses the same prefix";
    TooLarge = "too-large":
        "the stored record is larger than this store reads";
    StoreUnavailable = "store-unavailable":
        "the store did not grant the claim, so nothing was run; call again";
    TransactionAborted = "transaction-aborted":
        "its transaction can only be rolled back, and nothing of it is kept; roll it back and call again in a new one";
    CommitUnknown = "commit-unknown":
        "the reply to the commit was lost, so it is not known whether it happened; call again: what was committed is \
         replayed";
    Unconfirmed = "unconfirmed":
        "its body has ended, and the store has not confirmed the answer; call again with the same key: the repeat gets the \
         one answer";
    Reentered = "reentered":
        "its own body called it again with the same key, and would wait for itself; give the inner call a key of its own";
    TooManyRunning = "too-many-running":
        "as many bodies run as may at once, so nothing was run; call again later, and if it goes on find out why bodies \
         take so long or raise the limit";
    QuotaExceeded = "quota-exceeded":
        "the quota of its caller is used up, so nothing was run; call again later";
    ShuttingDown = "shutting-down":
        "the engine is shutting down and starts nothing new; call another instance";
    Changed = "changed":
        "the record is not the one that was seen any more, so nothing was changed; look again";
    InvalidKey = "invalid-key":
        "the key cannot be used";
    TokenInvalid = "token-invalid":
        "the one-time token is not ours, or was issued for another operation or subject, and nothing was run; if all are \
         refused, compare secrets, prefix, operation and subject with those of the process that issues them";
    TokenExpired = "token-expired":
        "the one-time token has expired and there is no answer to it, so nothing was run; show the user a page with a new \
         one, and if many expire give them a longer `life` or compare clocks";
    Unsupported = "unsupported":
        "the store cannot do this";
    InvalidCursor = "invalid-cursor":
        "the cursor is not that of this listing; begin the listing again";
    InvalidStep = "invalid-step":
        "a step cannot be run as it is written";
    InvalidPolicy = "invalid-policy":
        "it is not set up right";
    NoEngine = "no-engine":
        "no engine; call `Engine::install` at start-up, run inside `Engine::scope`, or write `engine = …`";
}

impl ErrorKind {
    /// Whether such a refusal needs an operator or other code.
    const fn needs_repair(&self) -> bool {
        matches!(
            self,
            Self::Unknown { .. }
                | Self::Exhausted { .. }
                | Self::Undecodable
                | Self::WrongType
                | Self::UnknownRecord
                | Self::TooLarge
                | Self::NoEngine
                | Self::InvalidPolicy
                | Self::InvalidStep
                | Self::Unsupported
        )
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(ErrorParts {
            kind,
            operation: operation.into(),
            detail: None,
            permanent: false,
            business: false,
            retry_after: None,
            outage: false,
            source: None,
            held: None,
            instance: OnceLock::new(),
        }))
    }

    /// Adds a sentence on what exactly was wrong. Never pass user data here.
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Sets whether the same call fails again until its cause is mended.
    pub(crate) fn permanent(mut self, permanent: bool) -> Self {
        self.0.permanent = permanent;
        self
    }

    /// Sets whether a business error ended the body.
    pub(crate) fn business(mut self, business: bool) -> Self {
        self.0.business = business;
        self
    }

    /// Sets when to repeat the call.
    pub(crate) fn worth_repeating(mut self, retry_after: Option<Duration>) -> Self {
        self.0.retry_after = retry_after;
        self
    }

    /// Sets whether the store was unreachable, for `on_outage = run`.
    pub(crate) fn outage(mut self, outage: bool) -> Self {
        self.0.outage = outage;
        self
    }

    pub(crate) fn is_outage(&self) -> bool {
        self.0.outage
    }

    /// Holds the answer that the caller would have received.
    pub(crate) fn holding(mut self, held: impl Any + Send + Sync) -> Self {
        self.0.held = Some(Arc::new(held));
        self
    }

    pub(crate) fn held(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.0.held.as_deref()
    }

    /// Takes detail and source from `cause`.
    ///
    /// This error alone shows the reason, and its chain repeats nothing.
    pub(crate) fn because(self, cause: impl StdError + Send + Sync + 'static) -> Self {
        let mut error = self.detail(cause.to_string());
        if cause.source().is_some() {
            error.0.source = Some(Arc::new(Beneath(cause)));
        }
        error
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// A name of this error alone: a random `urn:uuid:…`.
    ///
    /// A log line of the refusal has it, and so has the problem document that the client gets: a client that reports it
    /// leads to the line. It is not serialized, and a clone from before the first call of this method has another one.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.0.instance.get_or_init(random_urn)
    }

    /// The operation that was called.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.0.operation
    }

    /// Whether the same call, made again later, can succeed without an intervention.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let may_pass = match self.0.kind {
            // Its answer is being streamed.
            ErrorKind::Unknown { .. } => self.0.retry_after.is_some(),
            ErrorKind::Running { .. }
            | ErrorKind::StoreUnavailable
            | ErrorKind::TransactionAborted
            | ErrorKind::CommitUnknown
            | ErrorKind::Unconfirmed
            | ErrorKind::ShuttingDown
            | ErrorKind::TooManyRunning
            | ErrorKind::QuotaExceeded => true,
            _ => false,
        };
        may_pass && !self.0.permanent
    }

    /// Whether an operator or new code must intervene before a repeat succeeds.
    pub(crate) fn needs_repair(&self) -> bool {
        self.0.kind.needs_repair() && !self.is_retryable()
    }

    /// Whether a business error ended the body.
    ///
    /// Of a refused duplicate ([`ErrorKind::Duplicate`]), or of an error that could not be stored
    /// ([`ErrorKind::NotStored`]).
    #[doc(hidden)] // for the verdicts of idem-consumers
    #[must_use]
    pub fn is_of_business_error(&self) -> bool {
        self.0.business
    }

    /// The wait before a repeat, if known and finite.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.0.kind {
            ErrorKind::Duplicate {
                retry_after: Duration::MAX,
            } => None,
            ErrorKind::Running { retry_after } | ErrorKind::Duplicate { retry_after } => {
                Some(retry_after)
            }
            _ => self.0.retry_after,
        }
    }
}

/// A random `urn:uuid:…`, of version 4 (RFC 9562).
pub(crate) fn random_urn() -> String {
    let mut bytes = [0; 16];
    // Without randomness the URN names nothing, which is better than no answer at all.
    let _ = getrandom::fill(&mut bytes);
    let bits = u128::from_be_bytes(bytes);
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    format!(
        "urn:uuid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        bits >> 96,
        bits >> 80 & 0xffff,
        bits >> 64 & 0xffff,
        bits >> 48 & 0xffff,
        bits & 0xffff_ffff_ffff
    )
}

/// The source of an error whose own message is already shown.
#[derive(Debug)]
struct Beneath<E>(E);

impl<E: StdError> fmt::Display for Beneath<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.source() {
            Some(source) => fmt::Display::fmt(source, f),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl<E: StdError> StdError for Beneath<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source().and_then(StdError::source)
    }
}

/// A duration for people: `1.5s`, `230ms`, `6h`.
struct Spell(Duration);

impl fmt::Display for Spell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0 => write!(f, "{}ms", self.0.as_millis()),
            1..60 => write!(f, "{:.1}s", self.0.as_secs_f64()),
            60..3600 => write!(f, "{}min", seconds.div_ceil(60)),
            _ => write!(f, "{}h", seconds.div_ceil(3600)),
        }
    }
}

/// When the key of a done call is free again.
fn kept_for(retry_after: Duration) -> String {
    match retry_after {
        Duration::MAX => "its record is kept until it is deleted".to_owned(),
        time => format!("the key is free again in {}", Spell(time)),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: ", self.0.operation)?;
        match &self.0.kind {
            ErrorKind::StoreUnavailable if self.0.permanent => {
                f.write_str("the store refuses, so nothing was run; mend its access first")
            }
            kind => kind.sentence(f),
        }?;
        match &self.0.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.0.kind);
        debug.field("operation", &self.0.operation);
        if let Some(detail) = &self.0.detail {
            debug.field("detail", detail);
        }
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

impl Eq for Error {}

impl PartialEq for Error {
    /// Equal when kind and operation are; the source does not count.
    fn eq(&self, other: &Self) -> bool {
        self.0.kind == other.0.kind && self.0.operation == other.0.operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_operation_and_what_to_do() {
        let error = Error::new(
            ErrorKind::Running {
                retry_after: Duration::from_millis(12_345),
            },
            "payments.pay",
        );
        assert_eq!(
            error.to_string(),
            "`payments.pay`: the first call with this key is still running; call again in 12.3s"
        );
        assert!(error.is_retryable());
        assert_eq!(error.retry_after(), Some(Duration::from_millis(12_345)));
    }

    /// A record kept for ever has no `retry_after`.
    #[test]
    fn what_is_kept_for_ever_is_worth_no_repeat() {
        let retry_after = crate::FOREVER;
        let error = Error::new(ErrorKind::Duplicate { retry_after }, "payments.pay");
        assert_eq!(
            error.to_string(),
            "`payments.pay`: already done and repeats are refused; its record is kept until it is deleted"
        );
        assert_eq!(error.retry_after(), None);
    }

    #[test]
    fn an_error_survives_serde_without_its_source() {
        let error = Error::new(ErrorKind::StoreUnavailable, "a").because(
            crate::store::StoreError::new(crate::store::StoreErrorKind::Unavailable, "timed out")
                .because(fmt::Error),
        );
        let text = serde_json::to_string(&error).unwrap();
        let back: Error = serde_json::from_str(&text).unwrap();
        assert_eq!(back, error);
        assert_eq!(back.to_string(), error.to_string());
        assert!(error.source().is_some() && back.source().is_none());
        assert_eq!(
            error.to_string(),
            "`a`: the store did not grant the claim, so nothing was run; call again (timed out)"
        );
        let source = error.source().unwrap();
        assert_eq!(
            source.to_string(),
            fmt::Error.to_string(),
            "no message twice"
        );
    }
}
