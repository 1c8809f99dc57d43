//! Documentation of the API.

use axum::http::StatusCode;
use axum::response::Response;

use super::html::page;
use super::routes::{MOST_BYTES, RETENTION};

/// `GET /docs/idempotency`: the policy that the draft requires a server to publish.
pub(crate) async fn policy() -> Response {
    let main = POLICY
        .replace("{hours}", &(RETENTION.as_secs() / 3_600).to_string())
        .replace("{bytes}", &MOST_BYTES.to_string());
    page(StatusCode::OK, "Idempotency", "", &main)
}

const POLICY: &str = include_str!("policy.html");
