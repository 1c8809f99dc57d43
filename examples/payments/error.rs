//! Errors of the service, and the meaning of each for a repeat.

use std::fmt;
use std::time::Duration;

use idem_runtime::{Class, Classify, Error};
use serde::{Deserialize, Serialize};

/// Reason why there is no receipt.
///
/// The class is the whole policy: a business error is an answer and is kept, a system error releases
/// the key so that a repeat runs, and after an unknown one nothing runs until an operator has resolved it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Classify)]
pub(crate) enum PayError {
    #[class(business)]
    Declined,
    /// The card has less than the amount.
    #[class(business)]
    InsufficientFunds,
    /// Less than this is left of the payment.
    #[class(business)]
    RefundTooLarge,
    /// The payment was refused, so there is nothing to refund.
    #[class(business)]
    NothingToRefund,
    /// The refund came before its payment.
    #[class(system)]
    NotPaidYet,
    /// The provider did not answer. It may have charged; but it knows our derived key, so a retry
    /// is safe, and that is what makes this a system error and not an unknown one.
    #[class(system)]
    ProviderTimeout,
    /// The ledger's database refused; nothing was written.
    #[class(system)]
    Database,
    /// The message gateway did not answer. It knows no keys, so a retry may send twice.
    #[class(unknown)]
    GatewayTimeout,
    /// idem's own refusals.
    #[class(delegate)]
    Idem(Error),
}

impl PayError {
    /// Whether the same call can succeed later without an intervention.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Idem(error) => error.is_retryable(),
            other => other.class() == Class::System,
        }
    }

    /// Time to wait before a retry, if known.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Idem(error) => error.retry_after(),
            _ => None,
        }
    }
}

impl fmt::Display for PayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Declined => "the card was declined",
            Self::InsufficientFunds => "insufficient funds",
            Self::RefundTooLarge => "the refund is larger than what is left of the payment",
            Self::NothingToRefund => "the payment was refused, there is nothing to refund",
            Self::NotPaidYet => "the payment is not there yet",
            Self::ProviderTimeout => "the provider did not answer",
            Self::Database => "the database refused",
            Self::GatewayTimeout => "the message gateway did not answer; it may have sent",
            Self::Idem(error) => return fmt::Display::fmt(error, f),
        })
    }
}

/// The transaction is or will be rolled back: in either case, a repeat of the booking in another one detects the state.
impl From<sqlx::Error> for PayError {
    fn from(error: sqlx::Error) -> Self {
        // The details are for the operator, not for the caller.
        eprintln!("the database of the books: {error}");
        Self::Database
    }
}

impl From<Error> for PayError {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}
