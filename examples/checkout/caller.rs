//! Caller of the API: a bearer token, each one a customer of its own.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use super::api::ApiError;

/// The customer. A real shop verifies the credential; here every credential is a customer. No `Debug`, so that no log has
/// it.
pub(crate) struct Caller(String);

impl Caller {
    /// The customer that a request claims to be: the layer's scope of a key.
    pub(crate) fn of(request: &Parts) -> Option<String> {
        let line = request.headers.get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, credential) = line.split_once(' ')?;
        let credential = credential.trim();
        let known = scheme.eq_ignore_ascii_case("bearer") && !credential.is_empty();
        known.then(|| format!("api:{credential}"))
    }

    /// Name under which the caller's orders are stored.
    pub(crate) fn buyer(&self) -> &str {
        &self.0
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::of(parts).map(Self).ok_or(ApiError::CallerUnknown)
    }
}
