//! Failures of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "_server")]
use crate::env::credentials::ProviderError;

/// Why a store gave no reply.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    reach: Reach,
    message: String,
    retry_after: Option<Duration>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// How to react to a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No connection, no timely reply, or a server that does not write.
    ///
    /// That is a server that starts, fails over or is read-only. The same operation may be sent again, and it is not
    /// known whether this one happened.
    Unavailable,
    /// No room for another record. A claim may be sent again later.
    Full,
    /// More claims wait than the store can send in time. This one was not sent, and may be made again after
    /// [`StoreError::retry_after`].
    Overloaded,
    /// The server refuses the client: wrong password, missing right, evicting policy. Sending again does not help.
    Refused,
    /// The record is larger than the store reads.
    TooLarge,
    /// The server sent a reply that the protocol does not have.
    Protocol,
    /// The store cannot do this at all.
    Unsupported,
    /// The position of a listing is not valid, or not any more.
    ///
    /// It may be that of another store. Begin the listing again.
    InvalidCursor,
}

/// Whether a failed operation has reached its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The store returned the error itself.
    Answered,
    /// This process failed before anything was sent.
    ///
    /// It lacks memory, files or ports. No information about the store.
    #[cfg_attr(
        not(feature = "_server"),
        allow(dead_code, reason = "only a store with connections lacks any of these")
    )]
    Here,
    /// There was no reply.
    ///
    /// There may be no server, or an overloaded one.
    Silent,
    /// There is no server, or no route to it.
    Unreachable,
}

impl StoreError {
    /// An error of this kind.
    ///
    /// The message states the failure and the remedy, without keys, values or passwords.
    ///
    /// An error of kind [`Unavailable`](StoreErrorKind::Unavailable) may be an outage for
    /// [`OnOutage::Run`](crate::OnOutage::Run), unless it is [`answered`](Self::answered).
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        let reach = match kind {
            // An overlong queue belongs to a busy store, or to a lost one.
            StoreErrorKind::Unavailable | StoreErrorKind::Overloaded => Reach::Silent,
            _ => Reach::Answered,
        };
        Self {
            kind,
            reach,
            message: message.into(),
            retry_after: None,
            source: None,
        }
    }

    /// The refusal of a claim that could not be sent in time.
    ///
    /// After `retry_after` the queue in front of it has been served.
    pub fn overloaded(message: impl Into<String>, retry_after: Duration) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..Self::new(StoreErrorKind::Overloaded, message)
        }
    }

    /// Marks the error as returned by the store itself.
    ///
    /// The store was reached: it is full, busy, read-only, or refuses. Such an error is no outage for
    /// [`OnOutage::Run`](crate::OnOutage::Run).
    #[must_use]
    pub fn answered(mut self) -> Self {
        self.reach = Reach::Answered;
        self
    }

    /// Marks the error as one of a server that cannot be reached.
    ///
    /// Nothing listens at its address, or its host is not known. Such an error is an outage for
    /// [`OnOutage::Run`](crate::OnOutage::Run), even while other servers of the same store reply.
    #[must_use]
    pub fn unreachable(mut self) -> Self {
        self.reach = Reach::Unreachable;
        self
    }

    /// The error of a connection whose provider of credentials returned none.
    #[cfg(feature = "_server")]
    pub(crate) fn no_credentials(what: &str, error: ProviderError) -> Self {
        let message = format!("{what}: {error}");
        Self {
            source: error.into_source().map(Arc::from),
            ..Self::new(StoreErrorKind::Unavailable, message).here()
        }
    }

    #[cfg(feature = "_server")]
    pub(crate) fn here(mut self) -> Self {
        self.reach = Reach::Here;
        self
    }

    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    /// Adds the source of the error.
    #[must_use]
    pub fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The same of an error that is boxed already.
    #[cfg(feature = "_sql")]
    pub(crate) fn because_of(mut self, source: Box<dyn std::error::Error + Send + Sync>) -> Self {
        self.source = Some(Arc::from(source));
        self
    }

    /// Puts the place of the error before the message, once.
    #[cfg(feature = "redis")]
    pub(crate) fn at(mut self, place: &impl fmt::Display) -> Self {
        // As `connect_error` has it: an address may begin as another does.
        if !self.message.contains(&format!(" {place}: ")) {
            self.message = format!("{place}: {}", self.message);
        }
        self
    }

    /// Adds what else might be the matter.
    #[cfg(feature = "redis")]
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        self.message = format!("{}; {hint}", self.message);
        self
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// When the operation is worth repeating, where the store knows.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the same operation may succeed when it is sent again.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Unavailable | StoreErrorKind::Full | StoreErrorKind::Overloaded
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_ref()
            .map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_place_once() {
        let refused = |at: &str| {
            let message = format!("connecting to Redis at {at}: nothing listens");
            StoreError::new(StoreErrorKind::Unavailable, message)
        };
        let same = refused("127.0.0.1:6379").at(&"127.0.0.1:6379");
        assert_eq!(same.to_string().matches("127.0.0.1:6379").count(), 1);
        // The start of another address is not its own.
        let other = refused("127.0.0.1:6379").at(&"127.0.0.1:63");
        assert!(other.to_string().starts_with("127.0.0.1:63: "), "{other}");
    }
}
