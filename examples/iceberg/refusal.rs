//! A refused request, as an error of Iceberg.

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use idem_runtime::http::{Problem, Refusals};
use idem_runtime::{Classify, Error};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The reason of a refusal.
#[derive(Debug, Serialize, Deserialize, Classify)]
pub(crate) enum Refusal {
    /// It has no bearer token.
    #[class(business)]
    NotAuthorized,
    /// Its key or its body is malformed.
    #[class(business)]
    BadRequest(String),
    /// The namespace does not exist.
    #[class(business)]
    NoSuchNamespace(String),
    /// The table does not exist.
    #[class(business)]
    NoSuchTable(String),
    /// The namespace or table exists.
    #[class(business)]
    AlreadyExists(String),
    /// A requirement does not hold, because another commit came first.
    #[class(business)]
    CommitFailed(String),
    /// The database failed, and nothing is committed.
    #[class(system)]
    Unavailable,
    /// A refusal by idem.
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        eprintln!("idem-iceberg: {error}");
        Self::Unavailable
    }
}

/// A refused key.
impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::BadRequest(problem.detail().to_owned())
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Self::BadRequest(rejection.body_text())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, name, message) = match self {
            Self::NotAuthorized => (401, "NotAuthorizedException", "no bearer token".into()),
            Self::BadRequest(what) => (400, "BadRequestException", what),
            Self::NoSuchNamespace(name) => (404, "NoSuchNamespaceException", name),
            Self::NoSuchTable(name) => (404, "NoSuchTableException", name),
            Self::AlreadyExists(name) => (409, "AlreadyExistsException", name),
            Self::CommitFailed(why) => (409, "CommitFailedException", why),
            Self::Unavailable => (
                503,
                "ServiceUnavailableException",
                "nothing was done".into(),
            ),
            Self::Idempotency(error) => {
                let response = Refusals::iceberg().response(&Problem::from(&error));
                return response.map(Body::from);
            }
        };
        let error = json!({ "error": { "message": message, "type": name, "code": status } });
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(error)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, 1.into());
        }
        response
    }
}
