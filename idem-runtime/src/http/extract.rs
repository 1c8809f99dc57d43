//! Integration with axum: extractors and responses.

use ::http::request::Parts;
use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::key::{IdempotencyKey, KeyRefusal, KeyRules};
use super::problem::Problem;
use super::replayed::mark_replayed;
use super::reply::Reply;
use crate::error::Error;
use crate::outcome::Answer;

/// Extracts the key of the request.
///
/// It is the key that an [`IdempotencyLayer`](super::IdempotencyLayer) has read, else the header's, by the [`KeyRules`]
/// of an `Extension` or by the default ones. A request without a key is refused; take an `Option<IdempotencyKey>` where
/// the key is optional.
impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let key = key_of(parts)?.ok_or(KeyRefusal::Missing)?;
        Ok(key)
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        Ok(key_of(parts)?)
    }
}

fn key_of(parts: &Parts) -> Result<Option<IdempotencyKey>, KeyRefusal> {
    if let Some(key) = parts.extensions.get::<IdempotencyKey>() {
        return Ok(Some(key.clone()));
    }
    let rules = parts.extensions.get::<KeyRules>().copied();
    rules.unwrap_or_default().read(&parts.headers)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        Self::into_response(self).map(Body::from)
    }
}

/// Converts the error into the client's [`Problem`].
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        Problem::from(&self).into_response().map(Body::from)
    }
}

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        Self::into_response(self).map(Body::from)
    }
}

/// The response of the value; on a replay with the header `idempotent-replayed: true`.
impl<T: IntoResponse> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let replayed = !self.was_executed();
        let mut response = self.into_inner().into_response();
        if replayed {
            mark_replayed(response.headers_mut());
        }
        response
    }
}
