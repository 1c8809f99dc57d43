//! What a reconcile hook finds out.

use super::codec::Answer;

/// What a reconcile hook found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reconciled<T> {
    /// The effect happened, and this is the answer that the call would have had. It is stored and
    /// replayed; the body does not run.
    Landed(T),
    /// The effect did not happen and can no longer happen. The body runs.
    NotLanded,
    /// Nobody can say yet. The outcome stays unknown, and the next call asks again.
    Unknown,
}

/// What a reconcile hook may return: [`Reconciled<T>`], or a `Result` of it, where an error means
/// that nobody can say yet.
#[diagnostic::on_unimplemented(
    message = "a reconcile hook returns `Reconciled<{T}>` or a `Result` of it, not `{Self}`",
    label = "not what a reconcile hook returns",
    note = "`Reconciled::Landed` holds what the function returns in `Ok`"
)]
pub trait Verdict<T> {
    #[doc(hidden)]
    fn verdict(self) -> Reconciled<T>;
}

impl<T> Verdict<T> for Reconciled<T> {
    fn verdict(self) -> Self {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<T, E> Verdict<T> for Result<Reconciled<T>, E> {
    fn verdict(self) -> Reconciled<T> {
        self.unwrap_or(Reconciled::Unknown)
    }
}

/// What the hook of an attribute may return: a [`Verdict<T>`], and of a function that returns an [`Answer<T>`] also one
/// of the `T`, which is what is stored. Not for closures, whose types would no longer be inferred.
#[diagnostic::on_unimplemented(
    message = "a reconcile hook returns `Reconciled<{T}>` or a `Result` of it, not `{Self}`",
    label = "not what a reconcile hook returns",
    note = "`Reconciled::Landed` holds what the function returns in `Ok`, or the `T` of an `Answer<T>` there"
)]
pub trait Finding<T> {
    /// What was found out.
    fn verdict(self) -> Reconciled<T>;
}

impl<T> Finding<T> for Reconciled<T> {
    fn verdict(self) -> Self {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<T, E> Finding<T> for Result<Reconciled<T>, E> {
    fn verdict(self) -> Reconciled<T> {
        self.unwrap_or(Reconciled::Unknown)
    }
}

#[diagnostic::do_not_recommend]
impl<T> Finding<Answer<T>> for Reconciled<T> {
    fn verdict(self) -> Reconciled<Answer<T>> {
        match self {
            Self::Landed(value) => Reconciled::Landed(value.into()),
            Self::NotLanded => Reconciled::NotLanded,
            Self::Unknown => Reconciled::Unknown,
        }
    }
}

#[diagnostic::do_not_recommend]
impl<T, E> Finding<Answer<T>> for Result<Reconciled<T>, E> {
    fn verdict(self) -> Reconciled<Answer<T>> {
        Finding::verdict(self.unwrap_or(Reconciled::Unknown))
    }
}
