//! The endings of bodies, and the outcomes of calls.

use idem_runtime::{Classify, Error};
use idem_tests::checker::End;
use serde::{Deserialize, Serialize};

/// The answer of a body: no two bodies give the same.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Receipt(pub(crate) String);

/// How a body fails.
#[derive(Classify, Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Failure {
    /// An answer, as different from others as a receipt.
    #[class(business)]
    Declined(Receipt),
    #[class(system)]
    Down,
    #[class(unknown)]
    Unknown,
    #[class(delegate)]
    Idem(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(_: sqlx::Error) -> Self {
        Self::Down
    }
}

/// The outcome of a call in a line of the journal.
pub(crate) fn told(answer: &Result<Receipt, Failure>) -> String {
    match answer {
        Ok(Receipt(receipt)) => format!("ok {receipt}"),
        Err(Failure::Declined(Receipt(receipt))) => format!("declined {receipt}"),
        Err(Failure::Down) => "down".to_owned(),
        Err(Failure::Unknown) => "unknown".to_owned(),
        Err(Failure::Idem(error)) => End::refusal(error).to_string(),
    }
}
