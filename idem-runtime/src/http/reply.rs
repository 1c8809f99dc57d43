//! The response of a handler: a status, headers and a value.

mod stored;

use ::http::header::{CONTENT_TYPE, LOCATION};
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;
use serde::Serialize;

use super::replayed::mark_replayed;

/// A handler's response: a status, headers and a value.
///
/// For a handler under `#[idempotent]`. The value becomes the JSON body. A repeat gets the same three, and the header
/// `idempotent-replayed: true`.
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
/// # The stored form
///
/// The status, the value, and each header that the handler adds, because the handler names them one by one; except
/// headers that belong to one response or one client, which an
/// [`IdempotencyLayer`](super::IdempotencyLayer#headers-that-are-stored) never stores either: `Set-Cookie`, credentials
/// and challenges, names of tokens, keys and sessions, answers to CORS, the headers of the connection,
/// `Content-Length`, `Date`; and every value that [is marked as sensitive](HeaderValue::set_sensitive). The first
/// response has them, a replay does not, whatever its record contains.
///
/// A function that returned `T` may return `Reply<T>` from now on: its earlier answers are read with the status 200.
/// The reverse does not hold: a `Reply<T>` is not read as a `T`
/// ([`ErrorKind::Undecodable`](crate::ErrorKind::Undecodable); nothing runs again). So while both versions run, the
/// older one refuses the answers of the newer one.
#[derive(Clone)]
pub struct Reply<T> {
    status: StatusCode,
    headers: HeaderMap,
    value: T,
    replayed: bool,
}

impl<T> Reply<T> {
    /// A reply of this status.
    #[must_use]
    pub fn new(status: StatusCode, value: T) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            value,
            replayed: false,
        }
    }

    /// Status 200: it was done.
    #[must_use]
    pub fn ok(value: T) -> Self {
        Self::new(StatusCode::OK, value)
    }

    /// Status 201: it was created. Add its location: `.header(LOCATION, …)`.
    #[must_use]
    pub fn created(value: T) -> Self {
        Self::new(StatusCode::CREATED, value)
    }

    /// Status 202: it will be done.
    #[must_use]
    pub fn accepted(value: T) -> Self {
        Self::new(StatusCode::ACCEPTED, value)
    }

    /// Adds a header.
    ///
    /// An invalid header, such as a value with a line break, is left out: when an answer is written its effect has
    /// happened, and an answer without a header is better than none.
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

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers; `Content-Type` is among them only if the handler gave one.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The value.
    #[must_use]
    pub fn into_value(self) -> T {
        self.value
    }

    /// Whether another call produced this reply: stored before, or waited for.
    #[must_use]
    pub fn was_replayed(&self) -> bool {
        self.replayed
    }
}

impl Reply<()> {
    /// Status 204: it was done, and there is no content.
    #[must_use]
    pub fn no_content() -> Self {
        Self::new(StatusCode::NO_CONTENT, ())
    }

    /// Status 303: redirects, so that a reload of the page repeats nothing.
    #[must_use]
    pub fn see_other(uri: impl TryInto<HeaderValue>) -> Self {
        Self::new(StatusCode::SEE_OTHER, ()).header(LOCATION, uri)
    }
}

impl<T: Serialize> Reply<T> {
    /// Converts the reply into a response.
    ///
    /// The value is sent as `application/json`, unless a header sets another type. A `()` is no body at all.
    ///
    /// A value whose `Serialize` fails becomes a [`Problem`](super::Problem) with status 500 and code
    /// `answer-lost`.
    #[must_use]
    pub fn into_response(self) -> Response<Bytes> {
        let Ok(body) = serde_json::to_vec(&self.value) else {
            return super::problem::Problem::answer_lost()
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

// Without the value and the headers, which may be confidential.
debug_fields!([T] Reply<T> { status, headers: |it| it.headers.len(), replayed });
