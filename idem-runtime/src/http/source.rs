//! The place of a request in which its key is.

mod member;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName};

use self::member::string_at;
use super::headers::header_name;
use super::key::{IDEMPOTENCY_KEY, IdempotencyKey, KeyRefusal, KeyRules};
use super::payment;
use super::pointer::Pointer;

/// A rule of the service.
type Own = dyn Fn(&Parts) -> Result<Option<String>, KeyRefusal> + Send + Sync;

/// The place of a request in which its key is: see [`IdempotencyLayer::key_source`](super::IdempotencyLayer::key_source).
///
/// | source | the key | absent: 400 `key-missing`, or it passes | refused: 400 `key-invalid` |
/// |---|---|---|---|
/// | [`header`](Self::header) | the value of a header, as [`KeyRules`] reads it | no such header | two of them; no string |
/// | [`json`](Self::json) | a string of the JSON body | no such member; no body | no JSON, or compressed; no string, `null` too; the member twice |
/// | [`query`](Self::query) | a parameter of the query, decoded | no such parameter | twice; an escape that is none, or not UTF-8 |
/// | [`payment_identifier`](Self::payment_identifier) | the id in the payment of x402 | a payment without the extension | no base64 of JSON; no string |
/// | [`of`](Self::of) | the result of a function | it returns `None` | it returns the error |
///
/// Every key is checked by the length and the form of the [`KeyRules`]. The same text from two sources is the same key.
/// The key stays a part of the query or the body that the [fingerprint](super::Fingerprinter) counts.
///
/// A key in the body is known once the body is read: limits of the body come first then, and a request without a key
/// passes, where keys are [optional](super::IdempotencyLayer::optional), with its body in memory.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use axum::{Router, body::Body, http::Request, routing::post};
/// use idem_runtime::{Engine, http::{IdempotencyLayer, KeySource}, store::memory::MemoryStore};
/// use tower::ServiceExt as _;
///
/// let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api")
///     .key_source(KeySource::json("/meta/idempotency_key"));
/// let shop: Router = Router::new().route("/orders", post(async || "ordered")).layer(layer);
///
/// let order = r#"{ "item": "teapot", "meta": { "idempotency_key": "8e03978e" } }"#;
/// let send = || shop.clone().oneshot(Request::post("/orders").body(Body::from(order)).unwrap());
/// assert!(!send().await.unwrap().headers().contains_key("idempotent-replayed"));
/// assert_eq!(send().await.unwrap().headers()["idempotent-replayed"], "true");
/// # });
/// ```
#[derive(Clone)]
#[must_use = "it does nothing until a layer has it"]
pub struct KeySource(Place);

#[derive(Clone)]
enum Place {
    Header(HeaderName),
    /// A header by the name that gRPC has for it.
    #[cfg(feature = "tonic")]
    Metadata(HeaderName),
    Json(Pointer),
    Query(Arc<str>),
    /// The pointer to the id in a payment.
    PaymentIdentifier(Pointer),
    Own(Cow<'static, str>, Arc<Own>),
}

impl Default for KeySource {
    /// The header `Idempotency-Key`.
    fn default() -> Self {
        Self(Place::Header(IDEMPOTENCY_KEY))
    }
}

impl KeySource {
    /// The header of this name; default `Idempotency-Key`.
    ///
    /// Without `_` in it: nginx drops such a header by default, and where keys are
    /// [optional](super::IdempotencyLayer::optional) every repeat would be executed.
    ///
    /// # Panics
    ///
    /// If no header can have the name.
    pub fn header(name: impl AsRef<str>) -> Self {
        Self(Place::Header(header_name(name.as_ref())))
    }

    /// The header of this name, which gRPC calls metadata.
    #[cfg(feature = "tonic")]
    pub(crate) fn metadata(name: HeaderName) -> Self {
        Self(Place::Metadata(name))
    }

    /// The string at this pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) of the JSON body.
    ///
    /// The body is read as JSON, under any `Content-Type`. An empty body has no key; a body that is not a JSON
    /// document, or compressed, is refused, because nothing can tell whether it has one.
    ///
    /// # Panics
    ///
    /// If it is no pointer, or the empty one: without a key that could be found, every request would be refused.
    pub fn json(pointer: impl AsRef<str>) -> Self {
        let text = pointer.as_ref();
        let Some(pointer) = Pointer::read(text) else {
            panic!(
                "{text:?} is no pointer to a member; write it as \"/idempotency_key\" (RFC 6901)"
            );
        };
        Self(Place::Json(pointer))
    }

    /// The parameter of the query that has this name.
    ///
    /// Names and values are decoded as `application/x-www-form-urlencoded` is: `%` and two digits are a byte, `+` is a
    /// blank.
    pub fn query(name: impl Into<String>) -> Self {
        Self(Place::Query(name.into().into()))
    }

    /// The id of x402's extension `payment-identifier`, in the header `PAYMENT-SIGNATURE`.
    ///
    /// The header is base64 of a JSON document, and the id is its member
    /// `extensions["payment-identifier"].info.id` ([payment
    /// identifier](https://github.com/x402-foundation/x402/blob/main/specs/extensions/payment_identifier.md)). A request
    /// without the header passes, required or not: it gets the challenge of the payment layer.
    ///
    /// A repeat is answered before its payment is verified, so that the id is a secret of its client.
    pub fn payment_identifier() -> Self {
        let names = ["extensions", "payment-identifier", "info", "id"];
        Self(Place::PaymentIdentifier(Pointer::of(&names)))
    }

    /// The key that `read` finds in the head of a request.
    ///
    /// `place` names it in refusals: ``"cookie `order`"``, `"path segment"`. `None`: the request has no key.
    /// `read` must not block.
    ///
    /// # Errors
    ///
    /// An error of `read` refuses the request, with 400 `key-invalid`: [`KeyRefusal::Unreadable`] for a key that is
    /// there and cannot be read.
    ///
    /// ```
    /// use idem_runtime::http::{KeyRefusal, KeySource};
    ///
    /// // PUT /payments/8e03978e
    /// let source = KeySource::of("last segment of the path", |request| {
    ///     let (_, key) = request.uri.path().rsplit_once('/').ok_or(KeyRefusal::Unreadable)?;
    ///     Ok(Some(key.to_owned()))
    /// });
    /// # drop(source);
    /// ```
    pub fn of<F>(place: impl Into<Cow<'static, str>>, read: F) -> Self
    where
        F: Fn(&Parts) -> Result<Option<String>, KeyRefusal> + Send + Sync + 'static,
    {
        Self(Place::Own(place.into(), Arc::new(read)))
    }

    /// Whether it is known only once the body is read.
    pub(super) fn is_in_body(&self) -> bool {
        matches!(self.0, Place::Json(_))
    }

    /// Whether a request with this head can have a key.
    pub(super) fn applies(&self, headers: &HeaderMap) -> bool {
        match self.0 {
            Place::PaymentIdentifier(_) => payment::has_signature(headers),
            _ => true,
        }
    }

    pub(super) fn header_of_key(&self) -> Option<&HeaderName> {
        match &self.0 {
            Place::Header(name) => Some(name),
            #[cfg(feature = "tonic")]
            Place::Metadata(name) => Some(name),
            _ => None,
        }
    }

    /// Reads the key; `body` is empty unless the key [is in it](Self::is_in_body).
    pub(super) fn read(
        &self,
        rules: &KeyRules,
        request: &Parts,
        body: &[u8],
    ) -> Result<Option<IdempotencyKey>, KeyRefusal> {
        let text = match &self.0 {
            Place::Header(name) => return rules.read_from(&request.headers, name),
            #[cfg(feature = "tonic")]
            Place::Metadata(name) => return rules.read_from(&request.headers, name),
            Place::Json(_) if body.is_empty() => None,
            Place::Json(pointer) => string_at(body, pointer)?,
            Place::Query(name) => parameter(request.uri.query().unwrap_or_default(), name)?,
            Place::PaymentIdentifier(pointer) => match payment::document(&request.headers)? {
                Some(document) => string_at(&document, pointer)?,
                None => None,
            },
            Place::Own(_, read) => read(request)?,
        };
        text.map(|text| rules.check(text)).transpose()
    }

    /// The text of a refusal, which names the place, never the key.
    pub(super) fn explain(&self, refusal: &KeyRefusal) -> String {
        let needed = match &self.0 {
            Place::Header(name) if *name == IDEMPOTENCY_KEY => format!("an {self}"),
            #[cfg(feature = "tonic")]
            Place::Metadata(_) => format!("an {self}"),
            _ => format!("a key, {self}"),
        };
        let form = match &self.0 {
            Place::Json(_) => "the body must be one JSON document, and not compressed",
            Place::Query(_) => "its escapes must be those of UTF-8",
            Place::PaymentIdentifier(_) => "the header must be base64 of a JSON document",
            _ => "its form is not that of a key",
        };
        match refusal {
            KeyRefusal::NotAString if self.header_of_key().is_none() => {
                format!("the {self} is not a string")
            }
            KeyRefusal::Unreadable if self.header_of_key().is_none() => {
                format!("the {self} cannot be read: {form}")
            }
            refusal => refusal.text(&needed, self),
        }
    }
}

/// The name of the place.
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Header(name) if *name == IDEMPOTENCY_KEY => {
                f.write_str("Idempotency-Key header")
            }
            Place::Header(name) => write!(f, "header `{name}`"),
            #[cfg(feature = "tonic")]
            Place::Metadata(name) => write!(f, "`{name}` in its metadata"),
            Place::Json(pointer) => write!(f, "member `{pointer}` of the JSON body"),
            Place::Query(name) => write!(f, "query parameter `{name}`"),
            Place::PaymentIdentifier(_) => f.write_str("payment identifier in `PAYMENT-SIGNATURE`"),
            Place::Own(place, _) => f.write_str(place),
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySource({self})")
    }
}

/// The only parameter of this name.
fn parameter(query: &str, name: &str) -> Result<Option<String>, KeyRefusal> {
    let pairs = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    // A name that cannot be read is no other parameter's.
    let mut values = pairs.filter(|(of, _)| form_decoded(of).is_some_and(|of| of == name));
    let Some((_, value)) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(KeyRefusal::Repeated);
    }
    form_decoded(value).map(Some).ok_or(KeyRefusal::Unreadable)
}

/// A decoded name or value of a form; `None`: it is malformed.
fn form_decoded(text: &str) -> Option<String> {
    let mut rest = text.bytes();
    let mut bytes = Vec::with_capacity(text.len());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
