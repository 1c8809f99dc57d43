//! idem's own refusals as a status of gRPC.

use std::collections::HashMap;

use ::http::StatusCode;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::error::Error;
use crate::http::Problem;

/// The domain of the reasons in [`ErrorInfo`](tonic_types::ErrorInfo).
const DOMAIN: &str = "idem-runtime";

/// Delay before a gRPC client's own repeat
/// ([A6](https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback)).
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// A call whose request is not one message.
pub(super) fn not_unary() -> Problem {
    Problem::new(
        StatusCode::NOT_IMPLEMENTED,
        "not-unary",
        "The request is not one message",
        "a key is for a call of one request message, and this call has none or several; nothing was done: the answer to a \
         stream cannot be replayed, so send it without the key, if the service allows that",
    )
}

/// A call with a key, of a method that is not listed.
pub(super) fn method_not_listed() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "method-not-listed",
        "The method takes no key",
        "the server does not list this method among the unary ones that take a key, so that a repeat would be done again, \
         and the answers of a stream cannot be replayed; nothing was done: send the call without the key, or list the \
         method in the server's layer",
    )
}

/// A call of a listed method in another protocol, such as gRPC-Web.
pub(super) fn not_grpc() -> Problem {
    Problem::new(
        StatusCode::NOT_IMPLEMENTED,
        "not-grpc",
        "The call is not gRPC",
        "its content type is not `application/grpc`, and nothing was done: a layer that translates another protocol, such \
         as gRPC-Web, belongs outside of the layer that takes the key",
    )
}

/// The code of a refusal; see the table at [`grpc`](super).
fn code(problem: &Problem) -> Code {
    match problem.code() {
        "key-missing" | "key-invalid" | "method-not-listed" => Code::InvalidArgument,
        "caller-unknown" => Code::Unauthenticated,
        "token-invalid" | "token-expired" => Code::PermissionDenied,
        "key-reused" => Code::FailedPrecondition,
        "request-repeated" => Code::AlreadyExists,
        "not-unary" | "not-grpc" => Code::Unimplemented,
        "quota-exceeded" | "body-too-large" => Code::ResourceExhausted,
        "request-running" | "body-unreadable" | "body-timeout" | "answer-unconfirmed"
        | "too-many-running" | "unavailable" => Code::Unavailable,
        "outcome-unknown" | "attempts-exhausted" => Code::Unknown,
        "answer-lost" => Code::DataLoss,
        _ => Code::Internal,
    }
}

/// Converts a refusal into a status with [`ErrorInfo`](tonic_types::ErrorInfo) and
/// [`RetryInfo`](tonic_types::RetryInfo).
///
/// The table at [`grpc`](crate::grpc) has the codes. No message and no detail has a key, an argument or a stored answer.
impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        let mut facts =
            HashMap::from([("retryable".to_owned(), problem.is_retryable().to_string())]);
        if let Some(uri) = problem.instance_uri() {
            facts.insert("instance".to_owned(), uri.to_owned());
        }
        let reason = problem.code().replace('-', "_").to_ascii_uppercase();
        let mut details = ErrorDetails::with_error_info(reason, DOMAIN, facts);
        if let Some(uri) = problem.documentation() {
            details.add_help_link(problem.code(), format!("{uri}#{}", problem.code()));
        }
        let retry_after = problem.retry_after();
        if retry_after.is_some() {
            details.set_retry_info(retry_after);
        }
        let detail = match problem.code() {
            "key-reused" => format!(
                "{}; a repeat has the same bytes, in the same order of fields and the same compression",
                problem.detail()
            ),
            _ => problem.detail().to_owned(),
        };
        let mut status = Self::with_error_details(code(&problem), detail, details);
        if let Some(retry_after) = retry_after.filter(|_| problem.is_retryable()) {
            let millis = i32::try_from(retry_after.as_millis()).unwrap_or(i32::MAX);
            status
                .metadata_mut()
                .insert(PUSHBACK, MetadataValue::from(millis));
        }
        status
    }
}

/// Converts idem's own error, for a service whose functions are under `#[idempotent]`.
///
/// Without the name of the operation, and without details that are for the operator only.
impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Problem::from(&error).into()
    }
}
