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

mod call;
#[cfg(feature = "conformance")]
pub mod conformance;
mod engine;
mod env;
mod error;
pub mod guide;
#[cfg(feature = "http")]
pub mod http;
mod identity;
mod lifecycle;
mod local;
mod outcome;
mod policy;
mod record;
pub mod store;

#[doc(hidden)]
pub mod __private;

pub use env::clock;
pub use outcome::on_error;

pub use call::CallBuilder;
#[cfg(feature = "_sql")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite")))
)]
pub use call::CallInTx;
pub use engine::{Engine, EngineBuilder, HasEngine, InstallError, ShutdownError};
pub use env::observer::{Event, EventKind, Observer, StderrObserver};
pub use error::{Error, ErrorKind};
pub use identity::call_id::CallKey;
pub use identity::canonical::CanonicalError;
pub use identity::fingerprint::{
    Digest, Fingerprint, FingerprintBuilder, FingerprintError, ToFingerprint,
};
pub use identity::key::{
    DEFAULT_MAX_KEY_BYTES, FormatKey, KeyBuilder, KeyDigest, KeyError, KeyPart,
    ParseKeyDigestError, ToKey,
};
pub use identity::operation::Operation;
#[cfg(feature = "tokens")]
pub use identity::token::{Token, TokenIssuer, token};
pub use lifecycle::claim::{Claim, Completion};
pub use lifecycle::context::{Context, context, try_context};
pub use lifecycle::entries::{Entries, EntryPage};
pub use lifecycle::inspect::{Entry, EntryState};
pub use lifecycle::start::Acquired;
pub use local::cache::{LocalCache, LocalCacheStats};
pub use outcome::class::{Class, Classify};
#[cfg(feature = "encryption")]
pub use outcome::codec::EncryptionKeys;
pub use outcome::codec::{AnswerFormat, Replay};
pub use outcome::provenance::AnswerSource;
pub use outcome::reconciled::{IntoReconciled, Reconciled};
pub use outcome::stored::StoredAnswer;
pub use outcome::{Answer, FromError, Outcome};
pub use policy::{
    OnCancel, OnDuplicate, OnLeaseLost, OnOtherType, OnOutage, OnPanic, OnRunning, OnUnconfirmed,
    Policy,
};
pub use record::{FOREVER, Fence, OutcomeKind};
pub use store::EntryFilter;

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
