//! The status of HTTP that a code of gRPC is treated as.

use ::http::StatusCode;
use tonic::Code;

/// The status that a policy decides by: see [`GrpcLayer`](super::GrpcLayer#statuses).
///
/// That of `google.rpc.Code`, with three exceptions. `FAILED_PRECONDITION` (400 there) is the usual code of a business
/// answer. `ABORTED` (409 there) does not say how far the call came, and `CANCELLED` (499 there) neither.
pub(super) fn treated_as(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists => StatusCode::CONFLICT,
        Code::FailedPrecondition => StatusCode::FAILED_DEPENDENCY,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::Aborted | Code::Unknown | Code::Internal | Code::DataLoss => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}
