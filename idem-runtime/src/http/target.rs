//! The target of a request.

use ::http::Uri;
use ::http::request::Parts;

/// The target as the client wrote it.
///
/// A nested router of axum leaves only the end of the path.
pub(super) fn asked_for(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::OriginalUri(uri)) = parts.extensions.get() {
        return uri;
    }
    &parts.uri
}
