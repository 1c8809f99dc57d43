//! The mark of a replayed response.

use ::http::{HeaderMap, HeaderName, HeaderValue};

/// The response header of a replay: `Idempotent-Replayed: true`.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

pub(super) fn mark_replayed(headers: &mut HeaderMap) {
    let _ = headers.try_insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
}
