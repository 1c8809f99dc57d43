//! Meaning of an error for the record: answer, retry or unknown outcome.

/// The meaning of a body's error for its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// An answer: validation, balance, stock, state. It is stored and replayed.
    Business,
    /// Nothing happened: network, database, refused before sending. The key is released, and the next call runs the
    /// body again. That call may have other arguments, unless the body requested a [derived
    /// key](crate::Context::derive_key) or ran another idempotent call.
    System,
    /// The effect may have happened: a time-out *after* sending. The outcome is stored as unknown, and nothing runs for
    /// this key until a `reconcile` hook or an [`Entry`](crate::admin::Entry) resolves it, or its `ttl` has passed.
    Unknown,
}

/// Sorts an error type into [`Class`]es. Usually derived.
///
/// ```
/// use idem_runtime::{Class, Classify};
///
/// #[derive(Debug)]
/// enum PayError {
///     InsufficientFunds,
///     Database(String),
///     TimedOutAfterSending,
/// }
///
/// // `#[derive(Classify)]` with `#[class(…)]` on each variant writes this:
/// impl Classify for PayError {
///     fn class(&self) -> Class {
///         match self {
///             Self::InsufficientFunds => Class::Business,
///             Self::Database(_) => Class::System,
///             Self::TimedOutAfterSending => Class::Unknown,
///         }
///     }
/// }
///
/// assert_eq!(PayError::InsufficientFunds.class(), Class::Business);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which of its errors are answers",
    label = "this error type is not classified",
    note = "derive `idem_runtime::Classify` for `{Self}` and put `#[class(business | system | unknown)]` on each variant, or choose `on_error = release | keep | unknown | path::to::fn`",
    note = "if it is the field of a `#[class(delegate)]` variant: give that variant a class of its own"
)]
pub trait Classify {
    /// The class of this error.
    fn class(&self) -> Class;
}

impl<E: Classify + ?Sized> Classify for Box<E> {
    fn class(&self) -> Class {
        (**self).class()
    }
}

/// The class of one of idem's own refusals.
///
/// For an error that wraps that of a nested call: an unknown outcome stays unknown; every other refusal means that the
/// nested body did not run now, or, of a step, that its result is not recorded, so that it may run again. A class decides about the *record* of the outer call, not whether a caller should
/// retry; for that use [`Error::is_retryable`](crate::Error::is_retryable).
impl Classify for crate::Error {
    fn class(&self) -> Class {
        match self.kind() {
            crate::ErrorKind::Unknown { .. } => Class::Unknown,
            _ => Class::System,
        }
    }
}
