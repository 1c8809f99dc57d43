//! The answer to a mutation.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The answer to a mutation: 200 with a document, or 204.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done(Option<Value>);

impl Done {
    pub(crate) fn with(document: Value) -> Self {
        Self(Some(document))
    }

    pub(crate) fn nothing() -> Self {
        Self(None)
    }
}

impl IntoResponse for Done {
    fn into_response(self) -> Response {
        match self.0 {
            Some(document) => Json(document).into_response(),
            None => StatusCode::NO_CONTENT.into_response(),
        }
    }
}
