//! The identity of a request: key, owner, content.

use std::pin::pin;
use std::time::Duration;

use ::http::header::CONTENT_LENGTH;
use ::http::request::Parts;
use http_body::Body;
use sha2::Digest as _;

use super::body::{BodyEnd, Buffered, read};
use super::problem::Problem;
use super::protocol::{Messages, Protocol};
use super::settings::LayerSettings;
use super::target::asked_for;
use crate::env::clock::deadline;
use crate::policy::LONG;

/// The scope and digest of a request with a key.
pub(super) struct Admitted {
    pub(super) scope: Option<String>,
    pub(super) asked: [u8; 32],
}

/// Finds key and owner of a request, and digests its content.
///
/// The key is put among its extensions, and the body is in memory after it. A key in the body is read after that.
/// `None`: the request has no key, and needs none.
#[allow(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` has room for its arguments twice"
)]
pub(super) fn admit<B: Body>(
    parts: &mut Parts,
    body: &mut Buffered<B>,
    settings: &LayerSettings,
    due: Option<Duration>,
) -> impl Future<Output = Result<Option<Admitted>, Problem>> {
    async move {
        let is_in_body = settings.profile().source.is_in_body();
        let mut owner = KeyScope(None);
        if !is_in_body {
            let Some(found) = identify(parts, &[], settings).transpose()? else {
                return Ok(None);
            };
            owner = found;
        }
        let asked = take(parts, body, settings, due).await?;
        if is_in_body {
            let Some(found) = identify(parts, &body.bytes(), settings).transpose()? else {
                return Ok(None);
            };
            owner = found;
        }
        let KeyScope(scope) = owner;
        Ok(Some(Admitted { scope, asked }))
    }
}

/// The scope of a key; `None`: all callers share one.
struct KeyScope(Option<String>);

/// Puts a request's key among its extensions, and finds the key's owner. `None`: it has no key.
fn identify(
    parts: &mut Parts,
    body: &[u8],
    settings: &LayerSettings,
) -> Option<Result<KeyScope, Problem>> {
    let key = match settings.key(parts, body).transpose()? {
        Ok(key) => key,
        Err(refusal) => return Some(Err(settings.of_key(&refusal))),
    };
    let scope = settings.scope.find(parts);
    parts.extensions.insert(key);
    let owner = scope.map(KeyScope);
    Some(owner.map_err(|_| Problem::caller_unknown()))
}

/// Reads the body of a request into memory. Returns the request's digest.
///
/// 413 for a body that exceeds the layer's limit, by its declared length or by the data received; 408 for a body that
/// does not arrive in time, or until the moment `due`; 400 for a body that ends with an error. Where the protocol has
/// messages, 501 for a body that is not one of them.
#[allow(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` has room for its arguments twice"
)]
fn take<B: Body>(
    parts: &Parts,
    body: &mut Buffered<B>,
    settings: &LayerSettings,
    due: Option<Duration>,
) -> impl Future<Output = Result<[u8; 32], Problem>> {
    async move {
        let (fingerprinter, max_bytes) =
            (&settings.profile().fingerprinter, settings.max_body_bytes);
        let announced = parts.headers.get(CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| usize::try_from(length).map_or(true, |it| it > max_bytes))
        {
            return Err(Problem::body_too_large(max_bytes));
        }
        let uri = asked_for(parts);
        let mut hash = fingerprinter.begin(parts, uri);
        let protocol = settings.rules.protocol.as_deref();
        let mut counter = protocol.map(Protocol::counter);
        let mut messages = Messages::None;
        let show = |data: &[u8]| {
            if let Some(hash) = &mut hash {
                hash.update(data);
            }
            if let Some(counter) = &mut counter {
                messages = counter(data);
            }
            messages != Messages::More
        };
        let clock = settings.clock();
        let now = clock.now();
        let moment = now.saturating_add(settings.body_timeout.min(LONG));
        let moment = due.map_or(moment, |due| due.min(moment));
        let Some(unread) = body.unread() else {
            return Err(Problem::body_unreadable());
        };
        let read = deadline(clock, moment, pin!(read(unread, max_bytes, show))).await;
        let Ok(read) = read else {
            return Err(Problem::body_timeout(moment.saturating_sub(now)));
        };
        match read {
            (read, BodyEnd::Whole) => {
                if let Some(protocol) = protocol.filter(|_| messages != Messages::One) {
                    return Err(protocol.not_unary());
                }
                let asked = match hash {
                    Some(hash) => hash.finalize().into(),
                    None => fingerprinter.digest(parts, uri, &read.data),
                };
                *body = Buffered::whole(read);
                Ok(asked)
            }
            (_, BodyEnd::More(_)) => Err(match protocol {
                Some(protocol) if messages == Messages::More => protocol.not_unary(),
                _ => Problem::body_too_large(max_bytes),
            }),
            (_, BodyEnd::Broken(_)) => Err(Problem::body_unreadable()),
        }
    }
}
