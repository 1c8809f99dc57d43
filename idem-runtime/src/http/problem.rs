//! Problem documents: the responses of idem itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, LINK, RETRY_AFTER};
use ::http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::Value;

use super::key::KeyRefusal;
use super::status::KeyVerdict;
use crate::error::{Error, ErrorKind, random_urn};

/// A problem document ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)): the response of a refusal.
///
/// It is `application/problem+json` with `type`, `title`, `status`, `detail` and `instance`, and besides them (section
/// 3.2) `code`, a machine-readable word, and `retryable`: whether the request is worth sending again as it is, with the
/// same key, and after `Retry-After` where there is one.
///
/// Nothing in it comes from the request, the store or a stored answer, unless [`member`](Self::member) adds it.
///
/// | `code` | status | when |
/// |---|---|---|
/// | <a id="key-missing"></a>`key-missing` | 400 | the operation requires a key |
/// | <a id="key-invalid"></a>`key-invalid` | 400 | not one string, empty, too long, sent twice |
/// | <a id="caller-unknown"></a>`caller-unknown` | 403 | the layer's scope found no owner of the key |
/// | <a id="token-invalid"></a>`token-invalid` | 403 | the one-time token is not for this caller and request |
/// | <a id="token-expired"></a>`token-expired` | 403 | it has expired, and no answer to it is stored |
/// | <a id="request-running"></a>`request-running` | 409 | the first request is still running, or its answer is being [streamed](super::IdempotencyLayer#streams), or was cut off less than `max_run` ago; `Retry-After` of 1 or 2 s |
/// | <a id="request-repeated"></a>`request-repeated` | 409 | done before, and the operation refuses repeats; `Retry-After` |
/// | <a id="body-unreadable"></a>`body-unreadable` | 400 | the request body broke off |
/// | <a id="body-timeout"></a>`body-timeout` | 408 | it did not arrive in the layer's time |
/// | <a id="body-too-large"></a>`body-too-large` | 413 | it is longer than the layer takes |
/// | <a id="key-reused"></a>`key-reused` | 422 | the key was sent before with another request |
/// | <a id="quota-exceeded"></a>`quota-exceeded` | 429 | the caller's quota of new requests is used up; nothing was done; `Retry-After` |
/// | <a id="outcome-unknown"></a>`outcome-unknown` | 500 | it is unknown whether an earlier attempt had its effect, or its record cannot be read; it is not repeated |
/// | <a id="attempts-exhausted"></a>`attempts-exhausted` | 500 | every attempt crashed; it is not repeated |
/// | <a id="answer-lost"></a>`answer-lost` | 500 | done before, but the answer was not kept or cannot be read; it is not repeated |
/// | <a id="misconfigured"></a>`misconfigured` | 500 | a mistake in the server's own settings |
/// | <a id="answer-unconfirmed"></a>`answer-unconfirmed` | 503 | executed, and the answer is not stored yet; sending it again with the same key gets it; `Retry-After` |
/// | <a id="too-many-running"></a>`too-many-running` | 503 | the limit of running requests is reached; nothing was done; `Retry-After` of 1 s |
/// | <a id="unavailable"></a>`unavailable` | 503 | the store cannot be queried, or the server shuts down; sending it again with the same key is safe; `Retry-After` |
///
/// Behind an [`IdempotencyLayer`](super::IdempotencyLayer), a response made of one releases the layer's key
/// ([`KeyVerdict::Release`]): nothing was done, or the executed call has a record of its own. A handler that had another
/// effect before that, and answers `error.into_response()` of a call that it made, sets [`KeyVerdict::Unknown`] itself.
///
/// ```
/// use idem_runtime::http::{KeyRefusal, Problem};
///
/// let problem = Problem::from(KeyRefusal::Missing).documented_at("https://api.example.com/docs/idempotency");
/// let response = problem.into_response();
/// assert_eq!(response.status(), 400);
/// assert_eq!(response.headers()["content-type"], "application/problem+json");
/// assert_eq!(
///     response.headers()["link"],
///     "<https://api.example.com/docs/idempotency>; rel=\"describedby\"; type=\"text/html\""
/// );
/// let document: serde_json::Value = serde_json::from_str(response.body())?;
/// assert_eq!(document["type"], "https://api.example.com/docs/idempotency#key-missing");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    documented_at: Option<String>,
    instance: Option<String>,
    retry_after: Option<Duration>,
    is_retryable: bool,
    /// Members added by the service.
    members: BTreeMap<Cow<'static, str>, Value>,
    /// Whether idem refused: the call ran nothing, or has its own record.
    is_refusal: bool,
}

/// The longest `Retry-After` of a running request.
///
/// The lease determines when its owner is given up, not when its handler is done: a client that waited for the end of
/// a lease of 30 s would wait 30 s for a handler of 0.3 s. A client that comes back too early costs one claim, once in
/// this time. Not less than 1 s, the smallest delay that is not "at once" (RFC 9110, section 10.2.3).
const SOON: Duration = Duration::from_secs(2);

/// The detail of a repeat during a stream, or after its crash.
const STREAMED: &str = "the answer to the first request with this key is being streamed, or was cut off: send this one \
    again later";

#[derive(Serialize)]
struct Document<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    instance: &'a str,
    code: &'a str,
    retryable: bool,
    #[serde(flatten)]
    members: &'a BTreeMap<Cow<'static, str>, Value>,
}

/// The standard members of a document.
const MEMBERS: &[&str] = &[
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "code",
    "retryable",
];

/// The codes of a layer over HTTP, as [`Problem`] lists them.
pub(super) const CODES: [&str; 19] = [
    "key-missing",
    "key-invalid",
    "caller-unknown",
    "token-invalid",
    "token-expired",
    "request-running",
    "request-repeated",
    "body-unreadable",
    "body-timeout",
    "body-too-large",
    "key-reused",
    "quota-exceeded",
    "outcome-unknown",
    "attempts-exhausted",
    "answer-lost",
    "misconfigured",
    "answer-unconfirmed",
    "too-many-running",
    "unavailable",
];

/// The type of the documents.
pub(super) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The default page that describes the codes.
const DOCUMENTATION: &str =
    "https://docs.rs/idem-runtime/latest/idem_runtime/http/struct.Problem.html";

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl fmt::Display,
    ) -> Self {
        Self {
            status,
            code,
            title,
            detail: detail.to_string(),
            documented_at: None,
            instance: None,
            retry_after: None,
            is_retryable: false,
            members: BTreeMap::new(),
            is_refusal: true,
        }
    }

    /// The key is missing or refused, for the reason in the text.
    pub(super) fn of_key(refusal: &KeyRefusal, text: impl fmt::Display) -> Self {
        let (code, title) = match refusal {
            KeyRefusal::Missing => ("key-missing", "Idempotency-Key is missing"),
            _ => ("key-invalid", "Idempotency-Key is not valid"),
        };
        Self::new(StatusCode::BAD_REQUEST, code, title, text)
    }

    /// The scope of the layer found no owner of the key.
    pub(crate) fn caller_unknown() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "caller-unknown",
            "The caller is not known",
            "a key belongs to whoever sends it, and this request does not say who that is: send your credentials",
        )
    }

    /// The request body ended with an error.
    pub(crate) fn body_unreadable() -> Self {
        let problem = Self::new(
            StatusCode::BAD_REQUEST,
            "body-unreadable",
            "The request body could not be read",
            "it broke off, and nothing was done: send the request again with the same key",
        );
        problem.retryable(true)
    }

    /// The request body did not arrive in time.
    pub(crate) fn body_timeout(within: Duration) -> Self {
        let problem = Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "body-timeout",
            "The request body did not arrive in time",
            format_args!(
                "it did not arrive within {within:?}, and nothing was done: send the request again with the same key"
            ),
        );
        problem.retryable(true)
    }

    /// The request body exceeds the limit of the layer.
    pub(crate) fn body_too_large(max_bytes: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body-too-large",
            "The request body is too large",
            format_args!(
                "a request with an Idempotency-Key may have a body of {max_bytes} bytes; nothing was done"
            ),
        )
    }

    /// The answer cannot be serialized.
    pub(crate) fn answer_lost() -> Self {
        let mut problem = Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "answer-lost",
            "The answer cannot be repeated",
            "the request was done, but its answer cannot be written down; it is not done again",
        );
        problem.is_refusal = false;
        problem
    }

    /// The address of your documentation: an absolute URI; default this page.
    ///
    /// It becomes the `Link` of relation `describedby` (draft, 2.7), and, with the code as its fragment, the `type`.
    ///
    /// # Panics
    ///
    /// Never: an address that no header may carry is left out.
    #[must_use]
    pub fn documented_at(mut self, uri: impl Into<String>) -> Self {
        self.documented_at = Some(uri.into());
        self
    }

    /// Names this occurrence by a URI, such as a request id's.
    ///
    /// The default is a random `urn:uuid:…`; for an error of a call, its [`instance`](Error::instance).
    #[must_use]
    pub fn instance(mut self, uri: impl Into<String>) -> Self {
        self.instance = Some(uri.into());
        self
    }

    /// Adds an extension member ([RFC 9457, section 3.2](https://www.rfc-editor.org/rfc/rfc9457#section-3.2)).
    ///
    /// For example the key of the refused request. The client reads it: add no data of other callers, and no secret. A
    /// name that the document has of itself is left out, and so is a value that cannot be written as JSON.
    ///
    /// ```
    /// use idem_runtime::http::{KeyRefusal, Problem};
    ///
    /// let problem = Problem::from(KeyRefusal::Empty).member("support", &"https://api.example.com/support");
    /// let document: serde_json::Value = serde_json::from_str(problem.into_response().body())?;
    /// assert_eq!(document["support"], "https://api.example.com/support");
    /// assert_eq!(document["retryable"], false);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn member<T>(mut self, name: impl Into<Cow<'static, str>>, value: &T) -> Self
    where
        T: Serialize + ?Sized,
    {
        let name = name.into();
        if let Ok(value) = serde_json::to_value(value)
            && !MEMBERS.contains(&&*name)
        {
            self.members.insert(name, value);
        }
        self
    }

    pub(super) fn retryable(mut self, is_retryable: bool) -> Self {
        self.is_retryable = is_retryable;
        self
    }

    /// The machine-readable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    #[cfg(feature = "tonic")]
    pub(crate) fn instance_uri(&self) -> Option<&str> {
        self.instance.as_deref()
    }

    #[cfg(feature = "tonic")]
    pub(crate) fn documentation(&self) -> Option<&str> {
        self.documented_at.as_deref()
    }

    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The human-readable explanation.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The member `retryable`: whether to send the same request and key again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.is_retryable
    }

    /// The delay after which a repeat is worthwhile, where that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Converts the problem into a response.
    #[must_use]
    pub fn into_response(self) -> Response<String> {
        let wording = self.wording();
        let document = self.document(&wording);
        self.respond(&wording, PROBLEM_JSON, document)
    }

    /// The default wording of a response.
    pub(super) fn wording(&self) -> Wording<'_> {
        let documented_at = self.documented_at.as_deref().unwrap_or(DOCUMENTATION);
        Wording {
            status: self.status,
            code: self.code,
            of_type: Cow::Owned(format!("{documented_at}#{}", self.code)),
            message: &self.detail,
            instance: match &self.instance {
                Some(instance) => Cow::Borrowed(instance),
                None => Cow::Owned(random_urn()),
            },
            retry_after: self.retry_after.map(whole_seconds),
            documented_at: Some(documented_at),
        }
    }

    /// Whether [`documented_at`](Self::documented_at) names the documentation.
    pub(super) fn is_documented(&self) -> bool {
        self.documented_at.is_some()
    }

    /// The problem document, in these words.
    pub(super) fn document(&self, wording: &Wording<'_>) -> String {
        let document = Document {
            r#type: &wording.of_type,
            title: self.title,
            status: wording.status.as_u16(),
            detail: wording.message,
            instance: &wording.instance,
            code: wording.code,
            retryable: self.is_retryable,
            members: &self.members,
        };
        serde_json::to_string(&document).unwrap_or_default()
    }

    /// The response that says it with this body.
    pub(super) fn respond(
        &self,
        wording: &Wording<'_>,
        content_type: HeaderValue,
        body: String,
    ) -> Response<String> {
        let mut response = Response::new(body);
        *response.status_mut() = wording.status;
        if self.is_refusal {
            // An outer layer does not store it: the next request is checked again.
            response.extensions_mut().insert(KeyVerdict::Release);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        if let Some(seconds) = wording.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(documented_at) = wording.documented_at {
            let link = format!("<{documented_at}>; rel=\"describedby\"; type=\"text/html\"");
            if let Ok(link) = HeaderValue::try_from(link) {
                headers.insert(LINK, link);
            }
        }
        response
    }
}

/// The wording of a problem in a response.
pub(super) struct Wording<'a> {
    pub(super) status: StatusCode,
    pub(super) code: &'a str,
    pub(super) of_type: Cow<'a, str>,
    pub(super) message: &'a str,
    pub(super) instance: Cow<'a, str>,
    /// In seconds.
    pub(super) retry_after: Option<u32>,
    /// The target of the `Link`.
    pub(super) documented_at: Option<&'a str>,
}

/// The value of a `Retry-After`, rounded up to 1 s at least.
///
/// Never "at once", because the answer does not exist before.
pub(super) fn whole_seconds(delay: Duration) -> u32 {
    let seconds = delay.as_millis().div_ceil(1_000);
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

// Without the values of members, which may be the client's key.
debug_fields!(Problem {
    status,
    code,
    detail,
    retry_after,
    retryable: |it| it.is_retryable,
    members: |it| it.members.keys()
});

impl From<KeyRefusal> for Problem {
    fn from(refusal: KeyRefusal) -> Self {
        Self::of_key(&refusal, &refusal)
    }
}

/// Status, code, title and detail for the client, by kind of error.
macro_rules! refusals {
    ($($($kind:ident)|+ => $status:ident $code:literal $title:literal $detail:literal)+) => {
        impl Problem {
            fn of(kind: &ErrorKind) -> Self {
                match kind {
                    $($(ErrorKind::$kind { .. })|+ => Self::new(StatusCode::$status, $code, $title, $detail),)+
                    _ => Self::new(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "misconfigured",
                        "The server made a mistake",
                        "the request was not worked on: the server's settings do not allow it",
                    ),
                }
            }
        }
    };
}

refusals! {
    Running => CONFLICT "request-running" "A request is outstanding for this Idempotency-Key"
        "the first request with this key is still being worked on: send this one again later"
    Duplicate => CONFLICT "request-repeated" "The request was done before"
        "it was done before, and repeats are refused"
    Mismatch => UNPROCESSABLE_ENTITY "key-reused" "Idempotency-Key is already used"
        "this key came before with another request: a new request needs a new key"
    Unknown => INTERNAL_SERVER_ERROR "outcome-unknown" "The outcome is unknown"
        "an earlier attempt ended without anybody knowing whether it was done, so it is not repeated: ask before you send a \
         new one"
    Exhausted => INTERNAL_SERVER_ERROR "attempts-exhausted" "No attempt is left"
        "every attempt at this request was abandoned, so it is not tried again: ask before you send a new one"
    UnknownRecord | WrongType => INTERNAL_SERVER_ERROR "outcome-unknown" "The outcome is unknown"
        "what is stored of an earlier attempt cannot be read, so it is not repeated: ask before you send a new one"
    NotStored | Undecodable | TooLarge => INTERNAL_SERVER_ERROR "answer-lost" "The answer cannot be repeated"
        "the request was done before, but its answer was not kept or cannot be read; it is not done again"
    StoreUnavailable | ShuttingDown | TransactionAborted | CommitUnknown => SERVICE_UNAVAILABLE
        "unavailable" "The service is unavailable"
        "the request could not be worked on now: send it again with the same key"
    TooManyRunning => SERVICE_UNAVAILABLE "too-many-running" "Too many requests are worked on"
        "as many requests are worked on as may be at once, and nothing was done: send it again later with the same key"
    QuotaExceeded => TOO_MANY_REQUESTS "quota-exceeded" "The quota is used up"
        "your quota of new requests is used up, and nothing was done: send it again later with the same key"
    Unconfirmed => SERVICE_UNAVAILABLE "answer-unconfirmed" "The answer is not confirmed"
        "the request was worked on, and its answer is not stored yet: send it again with the same key to get it"
    InvalidKey => BAD_REQUEST "key-invalid" "The key is not valid"
        "what identifies this request is empty, too long or not valid"
    TokenInvalid => FORBIDDEN "token-invalid" "The token is not valid"
        "the one-time token of this request is damaged, or was given to somebody else or for something else; nothing was \
         done: load the page again"
    TokenExpired => FORBIDDEN "token-expired" "The token has expired"
        "the one-time token of this request has expired, and no answer to it is stored; nothing was done now: load the \
         page again"
}

/// Converts idem's own refusal for the client.
///
/// Without the name of the operation, and without details that are for the operator only.
impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let retry_after = error.retry_after();
        let mut problem = match (error.kind(), retry_after) {
            // The record does not tell a stream from its crash. Draft, 2.6: 409 during the stream.
            (ErrorKind::Unknown { .. }, Some(retry_after)) => {
                let mut problem = Self::of(&ErrorKind::Running { retry_after });
                STREAMED.clone_into(&mut problem.detail);
                problem
            }
            (kind, _) => Self::of(kind),
        };
        problem.instance = Some(error.instance().to_owned());
        problem.is_retryable = error.is_retryable();
        problem.retry_after = retry_after;
        if matches!(error.kind(), ErrorKind::Running { .. }) {
            problem.retry_after = problem.retry_after.map(|left| left.min(SOON));
        }
        if problem.status == StatusCode::SERVICE_UNAVAILABLE {
            // The client has nothing to change, whatever the operator has to repair first.
            problem.is_retryable = true;
            problem.retry_after.get_or_insert(Duration::from_secs(1));
        }
        problem
    }
}
