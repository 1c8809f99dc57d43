//! The caller of a mutation: its client, and its key.

use axum::RequestPartsExt as _;
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use idem_runtime::http::IdempotencyKey;

use crate::refusal::Refusal;
use crate::uuid;

/// A client, and the key of its mutation.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) client: String,
    pub(crate) key: IdempotencyKey,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        // A real catalog verifies the token, and takes its subject: a token is renewed before a request is repeated.
        let credential = parts.headers.get(AUTHORIZATION);
        let credential = credential.and_then(|credential| credential.to_str().ok());
        let client = credential.and_then(|credential| credential.strip_prefix("Bearer "));
        let client = client.ok_or(Refusal::NotAuthorized)?.to_owned();
        // By the rules of the profile that the routes have.
        let key: Option<IdempotencyKey> = parts.extract().await?;
        // The key is optional: a request without one is never repeated.
        let key = key.unwrap_or_else(|| IdempotencyKey(uuid::v7()));
        Ok(Self { client, key })
    }
}
