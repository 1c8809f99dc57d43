// Definitions of links for rustdoc come first: they win over those of the texts that follow, which are for GitHub.
// Without a feature, links to its items are broken.
#![cfg_attr(all(doc, not(doctest)), doc = include_str!("docs/links.txt"))]
#![cfg_attr(
    not(all(feature = "macros", feature = "sqlite", feature = "tonic")),
    allow(rustdoc::broken_intra_doc_links)
)]
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
#![cfg_attr(
    docsrs,
    doc(auto_cfg(hide(
        feature = "_certificates",
        feature = "_diesel",
        feature = "_mysql",
        feature = "_postgres",
        feature = "_server",
        feature = "_sql",
        feature = "_sqlite",
        feature = "_sqlx"
    )))
)]

#[macro_use]
mod debug;

mod call;
mod engine;
mod env;
mod error;
#[cfg(feature = "tonic")]
pub mod grpc;
pub mod guide;
#[cfg(feature = "http")]
pub mod http;
mod identity;
mod local;
mod outcome;
mod policy;
mod record;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

#[doc(hidden)]
pub mod __private;

pub use env::clock;
pub use outcome::on_error;

pub use call::context::{Context, context, try_context};
pub use call::{CallBuilder, Step, StepCall, step};
#[cfg(feature = "_sql")]
pub use call::{CallInTx, step_in_tx};
pub use call::{Engine, HasEngine, InstallError};
pub use engine::{EngineBuilder, ShutdownError};
pub use env::observer::Observer;
pub use error::{Error, ErrorKind};
pub use outcome::class::{Class, Classify};
pub use outcome::provenance::AnswerSource;
pub use outcome::reconciled::{IntoReconciled, Reconciled};
pub use outcome::{Answer, CallError, FromError, Outcome};
pub use policy::{
    OnCancel, OnDuplicate, OnLeaseLost, OnOtherType, OnOutage, OnPanic, OnRunning, OnUnconfirmed,
    Policy,
};
pub use record::FOREVER;

/// Records for people: read, list, resolve and reset them.
///
/// [`Engine::entries`] lists, [`CallBuilder::entry`] finds the record of one call.
pub mod admin {
    pub use crate::call::entries::{Entries, EntryPage};
    pub use crate::call::inspect::steps::{RecordedStep, SentKey, StepState};
    pub use crate::call::inspect::{Entry, EntryState};
    pub use crate::record::{
        Attempt, AttemptEnd, HistoryEvent, OperatorAct, OperatorVerb, Process,
    };
    pub use crate::store::listing::EntryFilter;
}

/// Answers kept in the process, replayed without the store.
pub mod cache {
    pub use crate::local::cache::{LocalCache, LocalCacheStats};
}

/// A claim held by hand: [`CallBuilder::begin`] without a body.
pub mod claim {
    pub use crate::call::claim::{Acquired, Claim, Completion};
}

/// How answers are written and read: format, encryption, and the types that can be replayed.
pub mod codec {
    #[cfg(feature = "encryption")]
    pub use crate::outcome::codec::EncryptionKeys;
    pub use crate::outcome::codec::{AnswerFormat, Replay};
    pub use crate::outcome::stored::StoredAnswer;
}

/// Credentials that change: a provider, called for each new connection.
///
/// `credentials` of the builders of [`PostgresStore` and `MySqlStore`](store::sql::SqlStoreBuilder),
/// [`RedisStore`](store::redis::RedisStoreBuilder), and of the sources of
/// [idem-consumers](https://docs.rs/idem-consumers) takes an async function that returns the password, with or without a user name, in place of that of the URL. It is called
///
/// - for each new connection, and
/// - once more if the server refuses the credentials: the connection is then tried a second time, if they are others.
///
/// A rotated password, or a token that lives for minutes, needs no restart: the connections that a server cuts are made
/// again with the provider's next credentials, within the call that needs them. If it refuses them too, or the provider
/// fails, the operation fails as with a server that cannot be reached, and is sent again until the deadline of the
/// call.
///
/// A provider is called by many connections at once, and keeps expensive credentials. Its future may be dropped. It
/// must not block its thread, which renews leases too: read files by `tokio::fs`. Where a server locks a user after
/// failed logins (`FAILED_LOGIN_ATTEMPTS` of MySQL), let the provider know the new password before the old one is
/// refused. Its error becomes the source of the store's error, and must not contain a secret. Neither credentials nor
/// providers show anything in `Debug`.
///
/// ```no_run
/// # #[cfg(feature = "redis")]
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::{credentials::Credentials, store::redis::RedisStore};
///
/// let store = RedisStore::builder("redis://payments@redis.example")
///     .credentials(|| async {
///         let password = tokio::fs::read_to_string("/run/secrets/redis").await?;
///         Ok::<_, std::io::Error>(Credentials::new(password.trim_end()))
///     })
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
pub mod credentials {
    pub use crate::env::credentials::{Credentials, CredentialsProvider};
}

/// The digest of a request, by which a key refuses another request.
pub mod fingerprint {
    pub use crate::identity::fingerprint::{Fingerprint, ToFingerprint};
}

/// Operations and keys: the identity of a call.
pub mod key {
    pub use crate::identity::call_id::CallKey;
    pub use crate::identity::key::{FormatKey, KeyDigest, ParseKeyDigestError, ToKey};
    pub use crate::identity::operation::Operation;
    pub use crate::identity::redacted::redacted;
}

#[doc(hidden)] // bounds and defaults of `step()`, which no user names
pub mod steps {
    pub use crate::call::{Hook, NoHook, StepHook, StepName};
}

/// Lives that answers choose: see [`CallBuilder::ttl_of`].
pub mod life {
    pub use crate::outcome::chosen_life::IntoLife;
    #[doc(hidden)] // parameters and bounds of `CallBuilder`, which no user names
    pub use crate::outcome::chosen_life::{
        ChosenLife, LifeOf, NeedsNoBody, OpenLife, TtlOf, ValueIs,
    };
}

/// The events of an [`Observer`], and the observers of this crate: see [`guide::observing`].
pub mod observe {
    pub use crate::env::call_end::{CallEnd, CallOutcome, CallResult};
    #[cfg(feature = "metrics")]
    pub use crate::env::metrics_observer::MetricsObserver;
    pub use crate::env::observer::{DerivedKey, Event, EventKind, StderrObserver};
    #[cfg(feature = "tracing")]
    pub use crate::env::tracing_observer::TracingObserver;
}

/// One-time tokens: keys that the server issues before the request is sent.
#[cfg(feature = "tokens")]
pub mod token {
    pub use crate::identity::token::{Token, TokenIssuer, token};
}

/// Classifies an error's variants by `#[class(business | system | unknown | delegate)]`.
///
/// Each variant carries exactly one class, and a variant without one is an error, so that each new variant is decided.
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
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("docs/links.txt"))]
#[cfg_attr(any(not(doctest), feature = "sqlite"), doc = include_str!("docs/idempotent.md"))]
pub use idem_macros::idempotent;
