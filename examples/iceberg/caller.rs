//! The caller of a mutation: its client, and its key.

use axum::RequestPartsExt as _;
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use idem_runtime::Answer;
use idem_runtime::http::IdempotencyKey;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::mutation::{Done, Mutation, mutate};
use crate::refusal::Refusal;

/// A client of a catalog, and the key of its mutation.
pub(crate) struct Caller {
    catalog: Catalog,
    client: String,
    key: IdempotencyKey,
}

impl FromRequestParts<Catalog> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, catalog: &Catalog) -> Result<Self, Refusal> {
        // A real catalog verifies the token, and takes its subject: a token is renewed before a request is repeated.
        let credential = parts.headers.get(AUTHORIZATION);
        let credential = credential.and_then(|credential| credential.to_str().ok());
        let client = credential.and_then(|credential| credential.strip_prefix("Bearer "));
        let client = client.ok_or(Refusal::NotAuthorized)?.to_owned();
        // By the rules of the profile that the routes have.
        let key: Option<IdempotencyKey> = parts.extract().await?;
        // The key is optional: a request without one is never repeated.
        let key = key.unwrap_or_else(|| IdempotencyKey(Uuid::now_v7().to_string()));
        let catalog = catalog.clone();
        Ok(Self {
            catalog,
            client,
            key,
        })
    }
}

impl Caller {
    /// Carries out a mutation.
    pub(crate) async fn mutate(self, mutation: Mutation) -> Result<Answer<Done>, Refusal> {
        let mut conn = self.catalog.pool.acquire().await?;
        mutate(&self.catalog, &mut conn, &self.client, self.key, mutation).await
    }
}
