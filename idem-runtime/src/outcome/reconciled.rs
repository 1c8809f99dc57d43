//! Result of a reconcile hook.

use super::answer::Answer;

/// The finding of a reconcile hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reconciled<T> {
    /// The effect happened, and this is the call's answer. It is stored and replayed; the body does not run.
    Landed(T),
    /// The effect did not happen and can no longer happen. The body runs.
    NotLanded,
    /// Not known yet. The outcome stays unknown, and the next call runs the hook again.
    Unknown,
}

/// Return type of a reconcile hook: [`Reconciled<T>`], or a `Result` of it.
///
/// An error means that the outcome is not known yet.
#[diagnostic::on_unimplemented(
    message = "a reconcile hook returns `Reconciled<{T}>` or a `Result` of it, not `{Self}`",
    label = "not what a reconcile hook returns",
    note = "`Reconciled::Landed` holds what the function returns in `Ok`"
)]
pub trait IntoReconciled<T> {
    #[doc(hidden)]
    fn verdict(self) -> Reconciled<T>;
}

impl<T> IntoReconciled<T> for Reconciled<T> {
    fn verdict(self) -> Self {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<T, E> IntoReconciled<T> for Result<Reconciled<T>, E> {
    fn verdict(self) -> Reconciled<T> {
        self.unwrap_or(Reconciled::Unknown)
    }
}

/// Return type of the hook of an attribute.
///
/// It is a [`IntoReconciled<T>`] or, for a function that returns an [`Answer<T>`], also one of the stored `T`. Not for
/// closures, whose types would no longer be inferred.
#[diagnostic::on_unimplemented(
    message = "a reconcile hook returns `Reconciled<{T}>` or a `Result` of it, not `{Self}`",
    label = "not what a reconcile hook returns",
    note = "`Reconciled::Landed` holds what the function returns in `Ok`, or the `T` of an `Answer<T>` there"
)]
pub trait HookVerdict<T> {
    /// The finding.
    fn verdict(self) -> Reconciled<T>;
}

#[doc(hidden)]
impl<T> HookVerdict<T> for Reconciled<T> {
    fn verdict(self) -> Self {
        self
    }
}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T, E> HookVerdict<T> for Result<Reconciled<T>, E> {
    fn verdict(self) -> Reconciled<T> {
        self.unwrap_or(Reconciled::Unknown)
    }
}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T> HookVerdict<Answer<T>> for Reconciled<T> {
    fn verdict(self) -> Reconciled<Answer<T>> {
        match self {
            Self::Landed(value) => Reconciled::Landed(value.into()),
            Self::NotLanded => Reconciled::NotLanded,
            Self::Unknown => Reconciled::Unknown,
        }
    }
}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T, E> HookVerdict<Answer<T>> for Result<Reconciled<T>, E> {
    fn verdict(self) -> Reconciled<Answer<T>> {
        HookVerdict::verdict(self.unwrap_or(Reconciled::Unknown))
    }
}
