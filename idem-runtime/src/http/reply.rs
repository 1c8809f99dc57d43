//! What a handler answers: a status, headers and a value.

mod stored;

use std::fmt;

use ::http::header::{CONTENT_TYPE, LOCATION};
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;
use serde::Serialize;

use super::service::IDEMPOTENT_REPLAYED;

/// What a handler under `#[idempotent]` answers: a status, headers and a value that becomes the JSON body. A
/// repeat gets the same three, and the header `idempotent-replayed: true`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use http::header::LOCATION;
/// use idem_runtime::{Engine, Error, http::Reply, store::memory::MemoryStore};
///
/// let engine = Engine::new(MemoryStore::new());
/// let create = || {
///     let call = engine.operation("orders.create").key(&7);
///     call.run(|_| async { Ok::<_, Error>(Reply::created(vec!["tea"].len()).header(LOCATION, "/orders/7")) })
/// };
///
/// let first = create().await?.into_response();
/// assert_eq!((first.status().as_u16(), &first.headers()[LOCATION], &first.body()[..]), (201, &"/orders/7".parse().unwrap(), &b"1"[..]));
/// assert!(!first.headers().contains_key("idempotent-replayed"));
///
/// let again = create().await?.into_response();
/// assert_eq!((again.status(), again.body()), (first.status(), first.body()));
/// assert_eq!(again.headers()["idempotent-replayed"], "true");
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// # What is stored
///
/// The status, the value, and each header that the handler adds, for it names them one by one; except those that belong
/// to one response or one client, which an [`IdempotencyLayer`](super::IdempotencyLayer#headers-that-are-stored) never
/// stores either: `Set-Cookie`, credentials and challenges, names of tokens, keys and sessions, answers to CORS, the
/// headers of the connection, `Content-Length`, `Date`; and every value that
/// [is marked as sensitive](HeaderValue::set_sensitive). The first response has them, a replay has not, whatever stands
/// in its record.
///
/// A function that returned `T` may return `Reply<T>` from now on: what it stored before is read with the status
/// 200. Not so the other way round: a `Reply<T>` is not read as a `T`
/// ([`ErrorKind::Undecodable`](crate::ErrorKind::Undecodable); nothing runs again). So while both versions run,
/// the older one refuses what the newer one has answered.
#[derive(Clone)]
pub struct Reply<T> {
    status: StatusCode,
    headers: HeaderMap,
    value: T,
    replayed: bool,
}

impl<T> Reply<T> {
    /// An answer of this status.
    #[must_use]
    pub fn new(status: StatusCode, value: T) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            value,
            replayed: false,
        }
    }

    /// 200: it was done.
    #[must_use]
    pub fn ok(value: T) -> Self {
        Self::new(StatusCode::OK, value)
    }

    /// 201: it was made. Say where it is: `.header(LOCATION, …)`.
    #[must_use]
    pub fn created(value: T) -> Self {
        Self::new(StatusCode::CREATED, value)
    }

    /// 202: it will be done.
    #[must_use]
    pub fn accepted(value: T) -> Self {
        Self::new(StatusCode::ACCEPTED, value)
    }

    /// Adds a header.
    ///
    /// One that no response may carry, such as a value with a line break, is left out: when an answer is
    /// written its effect has happened, and an answer without a header is better than none.
    #[must_use]
    pub fn header(
        mut self,
        name: impl TryInto<HeaderName>,
        value: impl TryInto<HeaderValue>,
    ) -> Self {
        if let (Ok(name), Ok(value)) = (name.try_into(), value.try_into()) {
            // A full map holds 24,576 headers, and no client takes that many.
            let _ = self.headers.try_append(name, value);
        }
        self
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Its headers; `Content-Type` is among them only if the handler gave one.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Its value.
    #[must_use]
    pub fn into_value(self) -> T {
        self.value
    }

    /// Whether it is the answer of another call than this one: stored before, or waited for.
    #[must_use]
    pub fn was_replayed(&self) -> bool {
        self.replayed
    }
}

impl Reply<()> {
    /// 204: it was done, and there is nothing to say.
    #[must_use]
    pub fn no_content() -> Self {
        Self::new(StatusCode::NO_CONTENT, ())
    }

    /// 303: look there. After a form, so that a reload of the page repeats nothing.
    #[must_use]
    pub fn see_other(uri: impl TryInto<HeaderValue>) -> Self {
        Self::new(StatusCode::SEE_OTHER, ()).header(LOCATION, uri)
    }
}

impl<T: Serialize> Reply<T> {
    /// The response that tells it: the value as `application/json`, unless a header says another type. A
    /// `()` is no body at all.
    ///
    /// A value whose `Serialize` fails becomes a [`Problem`](super::Problem) with status 500 and code
    /// `answer-lost`.
    #[must_use]
    pub fn into_response(self) -> Response<Bytes> {
        let Ok(body) = serde_json::to_vec(&self.value) else {
            return super::Problem::answer_lost()
                .into_response()
                .map(Bytes::from);
        };
        // `()` and unit structs.
        let nothing = size_of::<T>() == 0 && body == b"null";
        let body = if nothing { Vec::new() } else { body };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        let headers = response.headers_mut();
        if !nothing {
            let json = HeaderValue::from_static("application/json");
            headers.entry(CONTENT_TYPE).or_insert(json);
        }
        if self.replayed {
            mark_replayed(headers);
        }
        response
    }
}

/// Says that a response is a stored one.
pub(crate) fn mark_replayed(headers: &mut HeaderMap) {
    let _ = headers.try_insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
}

/// Without its value and its headers, which are nobody's business.
impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("replayed", &self.replayed)
            .finish_non_exhaustive()
    }
}
