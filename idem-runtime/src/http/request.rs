//! What was asked: method, path, query and body.

use ::http::Uri;
use ::http::header::CONTENT_LENGTH;
use ::http::request::Parts;
use http_body::Body;
use sha2::{Digest as _, Sha256};

use super::body::{Buffered, End, read};
use super::problem::Problem;

/// First in what is hashed: the version of its layout.
const DOMAIN: &[u8] = b"idempotency http request 1";

/// The body of a request, in memory, and the digest of what it asks.
///
/// # Errors
///
/// 413 for a body that is longer than `max_bytes`, known by what it says or by what came; 400 for one that
/// breaks off.
///
/// # Cancel safety
///
/// Nothing has happened.
pub(super) async fn take<B: Body>(
    parts: &Parts,
    body: B,
    max_bytes: usize,
) -> Result<(Buffered<B>, [u8; 32]), Problem> {
    let announced = parts.headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| usize::try_from(length).map_or(true, |it| it > max_bytes)) {
        return Err(Problem::body_too_large(max_bytes));
    }
    let mut hash = Sha256::new();
    let uri = asked_for(parts);
    field(&mut hash, DOMAIN);
    field(&mut hash, parts.method.as_str().as_bytes());
    field(&mut hash, uri.path().as_bytes());
    // No query is another request than an empty one.
    hash.update([u8::from(uri.query().is_some())]);
    field(&mut hash, uri.query().unwrap_or_default().as_bytes());
    // The body is the last, and so needs no length.
    match read(body, max_bytes, |data| hash.update(data)).await {
        (frames, End::Whole) => Ok((Buffered::whole(frames), hash.finalize().into())),
        (_, End::More(_)) => Err(Problem::body_too_large(max_bytes)),
        (_, End::Broken(_)) => Err(Problem::body_unreadable()),
    }
}

/// With its length before it, so that no two lists of fields are the same bytes.
fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// The target as the client wrote it: a nested router of axum leaves only the end of the path.
fn asked_for(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::OriginalUri(uri)) = parts.extensions.get() {
        return uri;
    }
    &parts.uri
}
