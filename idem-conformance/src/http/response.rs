//! A response, as it came.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// The header of a replayed response: at Stripe, in the Agentic Commerce Protocol and of idem-runtime.
const REPLAYED: &str = "idempotent-replayed";

#[derive(Clone, Debug)]
pub(super) struct ServerResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl ServerResponse {
    pub(super) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// Whether the server says that the response is a replay.
    pub(super) fn is_marked(&self) -> bool {
        self.header(REPLAYED) == Some("true")
    }

    /// A header of text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A value of the body, by its JSON pointer.
    pub(super) fn member(&self, pointer: &str) -> Option<Value> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        body.pointer(pointer).cloned()
    }

    /// Whether a client that reads status and body sees the same.
    pub(super) fn equals(&self, other: &Self) -> bool {
        self.status == other.status && self.body == other.body
    }

    /// The status and the begin of the body, in one line.
    pub(super) fn shown(&self) -> String {
        const MOST: usize = 160;
        let body = self.body[..self.body.len().min(MOST)].escape_ascii();
        let rest = if self.body.len() > MOST { "…" } else { "" };
        let mark = if self.is_marked() { " (replayed)" } else { "" };
        // Quotation marks are no danger in a line, and JSON is full of them.
        let body = body.to_string().replace("\\\"", "\"");
        format!("{}{mark} {body}{rest}", self.status.as_u16())
    }
}
