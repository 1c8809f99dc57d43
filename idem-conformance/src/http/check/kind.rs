//! The operations of a target by what they answer.

use http::Method;

use super::super::operation::Operation;
use super::super::response::ServerResponse;
use super::super::result::{Checked, ELSEWHERE, RowResult, need};
use super::super::tester::Tester;

/// An operation by its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum AnswerKind {
    /// 2xx.
    Usual,
    /// 4xx, and it was done.
    Rejected,
    /// 4xx, before anything is done.
    Invalid,
    /// 5xx.
    Failing,
    /// 2xx, at another path.
    Elsewhere,
}

impl AnswerKind {
    pub(super) fn operation<'t>(self, tester: &Tester<'t>) -> Checked<&'t Operation> {
        let target = tester.target;
        match self {
            Self::Usual => Ok(&target.operation),
            Self::Rejected => need(
                target.rejected.as_ref(),
                "an operation that is done and answers with 4xx (`rejected`)",
            ),
            Self::Invalid => need(
                target.invalid.as_ref(),
                "an operation that answers with 4xx before it is done (`invalid`)",
            ),
            Self::Elsewhere => need(target.elsewhere.as_ref(), ELSEWHERE),
            Self::Failing => need(
                target.failing.as_ref(),
                "an operation that answers with 5xx (`failing`)",
            ),
        }
    }

    /// Ends a test whose operation answers otherwise.
    pub(super) fn verify(self, operation: &Operation, answer: &ServerResponse) -> Checked {
        let (is_so, what) = match self {
            Self::Usual | Self::Elsewhere => (answer.is_success(), "2xx"),
            Self::Rejected | Self::Invalid => (answer.status.is_client_error(), "4xx"),
            Self::Failing => (answer.status.is_server_error(), "5xx"),
        };
        if is_so {
            return Ok(());
        }
        let shown = answer.shown();
        let why = format!("an operation that answers with {what}; {operation} answered {shown}");
        Err(RowResult::NotChecked(why.into()))
    }

    pub(super) fn phrase(self) -> &'static str {
        match self {
            Self::Usual => "a success",
            Self::Rejected => "a 4xx of the operation",
            Self::Invalid => "a 4xx of validation",
            Self::Failing => "a 5xx",
            Self::Elsewhere => "a success at another path",
        }
    }
}

/// An operation of this method.
pub(super) fn of_method<'t>(tester: &Tester<'t>, method: &Method) -> Checked<&'t Operation> {
    let target = tester.target;
    let mut all = std::iter::once(&target.operation).chain(&target.also);
    let found = all.find(|it| it.method == *method);
    found.ok_or_else(|| {
        let why = format!("an operation of the method {method} (`also`)");
        RowResult::NotChecked(why.into())
    })
}
