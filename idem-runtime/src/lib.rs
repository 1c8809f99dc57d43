// Its examples are compiled where all features are there that they use: none of them hides a line for that.
#![cfg_attr(
    any(
        not(doctest),
        all(
            feature = "axum",
            feature = "macros",
            feature = "postgres",
            feature = "redis",
            feature = "testing",
            feature = "tokens"
        )
    ),
    doc = include_str!("../README.md")
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Private features: what they guard names the public ones by hand.
#![cfg_attr(docsrs, doc(auto_cfg(hide(feature = "_server", feature = "_sql"))))]

mod answer;
mod ask;
mod backoff;
mod begin;
mod busy;
mod cache;
mod call;
mod canonical;
mod cause;
mod claim;
mod classify;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod digest_key;
mod engine;
mod enter;
mod entries;
mod entry;
mod error;
mod expired;
mod fingerprint;
mod flight;
pub mod guide;
#[cfg(feature = "http")]
pub mod http;
mod inputs;
mod keeper;
mod key;
mod lease;
mod meaning;
mod observer;
pub mod on_error;
mod operation;
mod orphan;
mod outage;
mod outcome;
mod padded;
mod policy;
mod reconcile;
mod record;
mod running;
mod settle;
mod spread;
pub mod store;
mod stored;
#[cfg_attr(not(feature = "tokens"), path = "token/without.rs")]
mod token;
mod transition;
mod unwind;
mod vigil;

#[doc(hidden)]
pub mod __private;

#[cfg(feature = "encryption")]
pub use answer::EncryptionKeys;
pub use answer::{Answer, AnswerFormat, How, Replay};
pub use begin::Begun;
pub use cache::{LocalCache, LocalCacheStats};
pub use call::CallBuilder;
#[cfg(feature = "_sql")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite")))
)]
pub use call::CallInTx;
pub use canonical::CanonicalError;
pub use claim::{Claim, Completion};
pub use classify::{Class, Classify};
pub use context::{Context, context, try_context};
pub use engine::{AlreadyInstalled, Engine, EngineBuilder, HasEngine, Unfinished};
pub use entries::{Entries, EntryPage};
pub use entry::{Entry, EntryState};
pub use error::{Error, ErrorKind};
pub use fingerprint::{Digest, Fingerprint, FingerprintBuilder, InvalidInput, ToFingerprint};
pub use inputs::CallKey;
pub use key::{
    DEFAULT_MAX_KEY_BYTES, FormatKey, KeyBuilder, KeyDigest, KeyError, KeyPart, NotADigest, ToKey,
};
pub use observer::{Event, EventKind, Observer, StderrObserver};
pub use operation::Operation;
pub use outcome::{FromError, Outcome};
pub use policy::{
    OnCancel, OnDuplicate, OnLeaseLost, OnOtherType, OnOutage, OnPanic, OnRunning, OnUnconfirmed,
};
pub use reconcile::{Reconciled, Verdict};
pub use record::{FOREVER, Fence, OutcomeKind};
pub use store::EntryFilter;
pub use stored::Stored;
#[cfg(feature = "tokens")]
pub use token::{Token, TokenIssuer, token};

/// Sorts the variants of an error by `#[class(business | system | unknown | delegate)]`.
///
/// Each variant carries exactly one class, and one without is an error: whoever adds a variant decides.
/// `delegate` asks the variant's only field. A struct carries its class itself.
///
/// ```
/// use idem_runtime::{Class, Classify};
///
/// #[derive(Classify)]
/// enum PayError {
///     #[class(business)]
///     InsufficientFunds { missing_cents: u64 },
///     #[class(system)]
///     Database(String),
///     #[class(unknown)]
///     TimedOutAfterSending,
///     #[class(delegate)]
///     Nested(Box<PayError>),
/// }
///
/// let nested = PayError::Nested(Box::new(PayError::TimedOutAfterSending));
/// assert_eq!(nested.class(), Class::Unknown);
/// ```
#[cfg(feature = "macros")]
pub use idem_macros::Classify;
#[cfg(feature = "macros")]
#[doc = include_str!("docs/idempotent.md")]
pub use idem_macros::idempotent;
