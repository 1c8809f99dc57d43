//! Integration with axum: extractors and responses.

use ::http::request::Parts;
use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::key::{IdempotencyKey, KeyRefusal, KeyRules};
use super::problem::Problem;
use super::profile::Profile;
use super::replayed::mark_replayed;
use super::reply::Reply;
use crate::error::Error;
use crate::outcome::Answer;

/// Extracts the key of the request.
///
/// It is the key that an [`IdempotencyLayer`](super::IdempotencyLayer) has read, else the one in the place and by the
/// rules of a [`Profile`] that is an `Extension`, else the header's, by the [`KeyRules`] of an `Extension` or by the
/// default ones. A request without a key is refused; take an `Option<IdempotencyKey>` where the key is optional. A key in
/// the body needs the layer: an extractor has no body, and refuses every request.
///
/// Of the profile, source and rules of the key apply here, and nothing else. A rejection is a problem document; a handler
/// that takes `Result<IdempotencyKey, Problem>` answers in a partner's words by
/// [`Refusals::response`](super::Refusals::response).
impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let refused = |refusal: KeyRefusal| problem(parts, &refusal);
        key_of(parts)
            .and_then(|key| key.ok_or(KeyRefusal::Missing))
            .map_err(refused)
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        key_of(parts).map_err(|refusal| problem(parts, &refusal))
    }
}

fn key_of(parts: &Parts) -> Result<Option<IdempotencyKey>, KeyRefusal> {
    if let Some(key) = parts.extensions.get::<IdempotencyKey>() {
        return Ok(Some(key.clone()));
    }
    if let Some(profile) = parts.extensions.get::<Profile>() {
        if profile.source.is_in_body() {
            return Err(KeyRefusal::Unreadable);
        }
        return profile.source.read(&profile.keys, parts, &[]);
    }
    let rules = parts.extensions.get::<KeyRules>().copied();
    rules.unwrap_or_default().read(&parts.headers)
}

fn problem(parts: &Parts, refusal: &KeyRefusal) -> Problem {
    match parts.extensions.get::<Profile>() {
        Some(profile) => Problem::of_key(refusal, profile.source.explain(refusal)),
        None => Problem::of_key(refusal, refusal),
    }
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

/// The response of the value; a replay has `idempotent-replayed: true`.
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
