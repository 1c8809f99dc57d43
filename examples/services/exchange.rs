//! Shared by the web frameworks: a request's client and its response, in types of `http`.

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use idem_runtime::Answer;
use idem_runtime::http::{IDEMPOTENT_REPLAYED, KeyRefusal, Problem, Reply};

use crate::bank::{Receipt, TransferError};

/// A request without a receipt.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It does not say who sends it.
    Unauthenticated,
    /// Its key is absent, or not one.
    Key(KeyRefusal),
    /// There was no transfer.
    Transfer(TransferError),
}

impl From<KeyRefusal> for Refusal {
    fn from(refusal: KeyRefusal) -> Self {
        Self::Key(refusal)
    }
}

impl From<TransferError> for Refusal {
    fn from(error: TransferError) -> Self {
        Self::Transfer(error)
    }
}

/// The authenticated client of a request.
///
/// # Errors
///
/// [`Refusal::Unauthenticated`], if there is none.
pub(crate) fn client(headers: &HeaderMap) -> Result<String, Refusal> {
    // A real service verifies the credential, and takes its subject: a token is renewed before a request is repeated.
    let credential = headers.get(AUTHORIZATION).and_then(|c| c.to_str().ok());
    let client = credential.and_then(|c| c.strip_prefix("Bearer "));
    client.map(str::to_owned).ok_or(Refusal::Unauthenticated)
}

/// The response of idem's own refusals is its problem document: status, `application/problem+json`, `Retry-After`.
#[must_use]
pub(crate) fn response(outcome: Result<Answer<Receipt>, Refusal>) -> Response<Vec<u8>> {
    let (status, text) = match outcome {
        Ok(answer) => {
            let was_executed = answer.was_executed();
            let mut response = Reply::created(answer.into_inner()).into_response();
            if !was_executed {
                let replayed = HeaderValue::from_static("true");
                response.headers_mut().insert(IDEMPOTENT_REPLAYED, replayed);
            }
            return response.map(Vec::from);
        }
        Err(Refusal::Key(refusal)) => {
            return Problem::from(refusal).into_response().map(Vec::from);
        }
        Err(Refusal::Transfer(TransferError::Idempotency(error))) => {
            return Problem::from(&error).into_response().map(Vec::from);
        }
        Err(Refusal::Transfer(TransferError::NotEnoughMoney)) => {
            (StatusCode::CONFLICT, "not enough money")
        }
        Err(Refusal::Transfer(TransferError::NotConfirmed)) => {
            (StatusCode::GATEWAY_TIMEOUT, "not confirmed")
        }
        Err(Refusal::Unauthenticated) => (StatusCode::UNAUTHORIZED, "no bearer token"),
    };
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
    }
    response
}
