//! The caller of a mutation: its client, and its key.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use idem_runtime::http::{IdempotencyKey, KeyRules};

use crate::refusal::Refusal;
use crate::uuid;

/// A client, and the key of its mutation.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) client: String,
    pub(crate) key: IdempotencyKey,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        // A real catalog verifies the token, and takes its subject: a token is renewed before a request is repeated.
        let credential = parts.headers.get(AUTHORIZATION);
        let credential = credential.and_then(|credential| credential.to_str().ok());
        let client = credential.and_then(|credential| credential.strip_prefix("Bearer "));
        let client = client.ok_or(Refusal::NotAuthorized)?.to_owned();
        let rules = KeyRules::default().accept(uuid::is_v7);
        let key = rules.read(&parts.headers)?;
        // The key is optional: a request without one is never repeated.
        let key = key.map_or_else(uuid::v7, |key| key.as_str().to_ascii_lowercase());
        let key = IdempotencyKey(key);
        Ok(Self { client, key })
    }
}
