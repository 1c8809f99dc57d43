//! Fingerprints of requests: the rules by which two requests are equal.

mod json;
mod multipart;

use std::fmt::{self, Write as _};
use std::sync::Arc;

use ::http::header::CONTENT_TYPE;
use ::http::request::Parts;
use ::http::{HeaderName, HeaderValue, Uri};
use sha2::{Digest as _, Sha256};

use self::json::Numbers;
use super::headers::{header_name, media_type};
use super::payment::{PAYMENT, document};
use super::pointer::Pointer;

/// Hash prefix of a request with a raw body and no headers.
const PLAIN: &[u8] = b"idempotency http request 1";
/// Hash prefix of any other request.
const OTHER: &[u8] = b"idempotency http request 2";

/// A custom rule of a service.
type Own = dyn Fn(&Parts, &[u8]) -> Option<Vec<u8>> + Send + Sync;

/// Rules by which two requests are equal: see [`IdempotencyLayer::fingerprint`](super::IdempotencyLayer::fingerprint).
///
/// Method, path and query always count, and the body does: byte by byte, unless a rule for bodies of its type applies.
/// So do the headers of a payment, in a request that has one: [`ignore_payment`](Self::ignore_payment). Of several
/// rules that of [`of`](Self::of) comes first. A body that does not match its `Content-Type` counts byte by byte, and
/// so does a compressed one (`Content-Encoding`).
///
/// A body that a rule applies to is in memory up to three times while its fingerprint is taken, each of at most
/// [`max_body_bytes`](super::IdempotencyLayer::max_body_bytes). That is done on the thread of the request, and takes some
/// tens of milliseconds for 2 MiB at worst (a document of very many members).
///
/// Each rule has a fingerprint of its own: after it is turned on or off, a repeat of an earlier request that it applies
/// to is a 422 `key-reused`. Nothing runs twice.
///
/// ```
/// use idem_runtime::{Engine, http::{Fingerprinter, IdempotencyLayer}, store::memory::MemoryStore};
///
/// let engine = Engine::new(MemoryStore::new());
/// let fingerprinter = Fingerprinter::new().json_without(["/sent_at"]).multipart().header("content-language");
/// let layer = IdempotencyLayer::public(engine, "shop.api").fingerprint(fingerprinter);
/// # drop(layer);
/// ```
#[derive(Clone, Default)]
#[must_use = "it does nothing until a layer has it"]
pub struct Fingerprinter {
    /// The excluded parts of a document; `None`: every byte of it counts.
    json: Option<Arc<[Pointer]>>,
    numbers: Numbers,
    multipart: bool,
    own: Option<Arc<Own>>,
    headers: Vec<HeaderName>,
    payment: Payment,
}

/// What counts of the headers of a payment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Payment {
    /// Every byte.
    #[default]
    Whole,
    /// Of version 2 the terms; of version 1 every byte.
    Terms,
    Nothing,
}

/// The parts of a payment that are not its terms.
///
/// Members signed anew, and members that a server writes anew or only for display.
const NOT_TERMS: [&[&str]; 6] = [
    &["payload"],
    &["extensions"],
    &["accepted", "extra"],
    &["accepted", "maxTimeoutSeconds"],
    &["resource", "description"],
    &["resource", "mimeType"],
];

impl Fingerprinter {
    /// Counts every byte of a body, and no header but a payment's.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ignores the order of members, whitespace and escapes in JSON documents.
    ///
    /// It applies to `application/json` and `…+json`: whitespace between tokens does not count, nor how a character of
    /// a string is escaped.
    ///
    /// The rest counts: the order of elements, and numbers as they are written, so that `1`, `1.0` and `1e0` are three;
    /// [`json_values`](Self::json_values) makes them one. (Neither rounds to a double as
    /// [RFC 8785](https://www.rfc-editor.org/rfc/rfc8785) does: two amounts beyond 2^53 would be one.) A document counts byte by byte where parsers do not agree on it: with a name twice in one object,
    /// with half of a surrogate pair, or nested more than 128 levels deep.
    pub fn json(self) -> Self {
        self.json_without([""; 0])
    }

    /// As [`json`](Self::json), and excludes the values at these pointers.
    ///
    /// For a value that a pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) names, neither its content nor
    /// its presence counts. For values that a client writes anew when it repeats a request, such as `/sent_at`,
    /// `/items/0/nonce` or, with a `/` in its name, `/a~1b`. Every value that the handler acts on must count: a repeat
    /// that differs in the excluded ones alone gets the response of the first.
    ///
    /// A text that is no pointer, and the empty one, which is the whole document, exclude nothing. Called twice, the
    /// second list applies.
    pub fn json_without<P: AsRef<str>>(mut self, pointers: impl IntoIterator<Item = P>) -> Self {
        let pointers = pointers.into_iter();
        self.json = Some(
            pointers
                .filter_map(|pointer| Pointer::read(pointer.as_ref()))
                .collect(),
        );
        self
    }

    /// Counts numbers in JSON documents by their exact value.
    ///
    /// As [`json`](Self::json), or [`json_without`](Self::json_without) where that is called too, in either order. `1`,
    /// `1.0`, `10e-1` and `1e0` are one number, and so are `0`, `-0` and `0.00`; no number is rounded, of however many
    /// digits. All else still counts: a member that is `null` is not an absent one, `1` is not `"1"`, and the order of
    /// elements differs.
    ///
    /// A number whose power of ten does not fit into 64 bits counts as it is written.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use axum::{Router, body::Body, http::Request, routing::post};
    /// use idem_runtime::{Engine, http::{Fingerprinter, IdempotencyLayer}, store::memory::MemoryStore};
    /// use tower::ServiceExt as _;
    ///
    /// let layer = IdempotencyLayer::public(Engine::new(MemoryStore::new()), "shop.api")
    ///     .fingerprint(Fingerprinter::new().json_values());
    /// let shop: Router = Router::new().route("/orders", post(async || "ordered")).layer(layer);
    /// let order = |body: &'static str| {
    ///     let request = Request::post("/orders").header("idempotency-key", "\"8e03978e\"");
    ///     let request = request.header("content-type", "application/json").body(Body::from(body));
    ///     shop.clone().oneshot(request.unwrap())
    /// };
    /// assert_eq!(order(r#"{"item": "tea", "price": 1.50}"#).await.unwrap().status(), 200);
    /// // The same order, by another serializer.
    /// let repeat = order(r#"{"price":1.5,"item":"tea"}"#).await.unwrap();
    /// assert_eq!(repeat.headers()["idempotent-replayed"], "true");
    /// // Another one.
    /// assert_eq!(order(r#"{"price":1.51,"item":"tea"}"#).await.unwrap().status(), 422);
    /// # });
    /// ```
    pub fn json_values(mut self) -> Self {
        self.numbers = Numbers::ByValue;
        self.json.get_or_insert_default();
        self
    }

    /// Ignores the boundary of forms (`multipart/form-data`), which clients randomize for each request.
    ///
    /// All else counts: the order of the parts, their headers, and so their names, file names and types, and their
    /// bytes.
    ///
    /// A form counts byte by byte where its boundary occurs outside its delimiter lines, or these are not exactly as
    /// [RFC 2046](https://www.rfc-editor.org/rfc/rfc2046#section-5.1.1) writes them (section 5.1.1): with text before
    /// the first or after the last, with blanks at their ends.
    pub fn multipart(mut self) -> Self {
        self.multipart = true;
        self
    }

    /// Replaces the bytes of a body by the result of a function.
    ///
    /// `None` means that the rule is not for this request, and the others apply. Called once for each request with a
    /// key, and must not block.
    ///
    /// Two requests for which it returns the same bytes are equal: every value that the handler acts on must be part of
    /// them.
    ///
    /// ```
    /// use idem_runtime::http::Fingerprinter;
    ///
    /// // Of a payment file its lines count, however they end.
    /// let by_lines = Fingerprinter::new().of(|request, body| {
    ///     let is_text = request.headers.get("content-type")? == "text/csv";
    ///     is_text.then(|| body.iter().copied().filter(|byte| *byte != b'\r').collect())
    /// });
    /// # drop(by_lines);
    /// ```
    pub fn of<F>(mut self, rule: F) -> Self
    where
        F: Fn(&Parts, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    {
        self.own = Some(Arc::new(rule));
        self
    }

    /// Counts this header as well: its presence, and its values in order.
    ///
    /// For a header that affects the operation, and is the same when the request is repeated.
    ///
    /// # Panics
    ///
    /// If the name is no valid header name: two requests that differ in the intended header would count as one.
    pub fn header(mut self, name: impl AsRef<str>) -> Self {
        self.headers.push(header_name(name.as_ref()));
        self.headers.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        self.headers.dedup();
        self
    }

    /// Excludes the headers of a payment: `PAYMENT-SIGNATURE` and `X-PAYMENT`.
    ///
    /// Unless [`header`](Self::header) names them.
    ///
    /// By default they count in a request that has them ([x402](https://github.com/x402-foundation/x402), versions 2 and
    /// 1): a repeat of a paid request with another payment, or without one, is a 422 `key-reused`. Excluded, it gets the
    /// paid response: for clients that begin every repeat without a payment, and whose scope is their own.
    pub fn ignore_payment(mut self) -> Self {
        self.payment = Payment::Nothing;
        self
    }

    /// Counts of a payment its terms alone.
    ///
    /// Of that in `PAYMENT-SIGNATURE`, unless [`header`](Self::header) names it. The terms are the accepted ones
    /// (scheme, network, amount, asset, recipient) and for what resource, as the client wrote them; not the signature
    /// with its nonce, and no extension. For clients that sign a new payment when they repeat a request: a repeat with
    /// equal terms is the same request. A payment that is no base64 of JSON counts byte by byte, and so does an
    /// `X-PAYMENT` of version 1.
    pub fn payment_terms(mut self) -> Self {
        self.payment = Payment::Terms;
        self
    }

    /// The terms of the payment; `None`: not counted, or unreadable.
    fn terms(&self, request: &Parts) -> Option<Vec<u8>> {
        if self.payment != Payment::Terms || self.headers.contains(&PAYMENT[0]) {
            return None;
        }
        let document = document(&request.headers).ok()??;
        json::canonical(&document, &NOT_TERMS.map(Pointer::of), Numbers::AsWritten)
    }

    /// The headers that count in this request, in hashing order.
    fn counted<'a>(
        &'a self,
        request: &'a Parts,
        terms: Option<&[u8]>,
    ) -> impl Iterator<Item = &'a HeaderName> + Clone {
        let has_terms = terms.is_some();
        let counts = move |name: &&HeaderName| {
            self.payment != Payment::Nothing
                && !(has_terms && **name == PAYMENT[0])
                && request.headers.contains_key(*name)
                && !self.headers.contains(name)
        };
        self.headers.iter().chain(PAYMENT.iter().filter(counts))
    }

    /// The hash state before a raw body; `None`: it must be whole.
    pub(super) fn begin(&self, request: &Parts, uri: &Uri) -> Option<Sha256> {
        let may_differ = self.own.is_some()
            || self.json.is_some() && json_type(request).is_some()
            || self.multipart && boundary(request).is_some();
        (!may_differ).then(|| self.head(request, uri, "raw"))
    }

    /// The digest of a request with its whole body.
    pub(super) fn digest(&self, request: &Parts, uri: &Uri, body: &[u8]) -> [u8; 32] {
        let head = |rule| self.head(request, uri, rule);
        if let Some(own) = &self.own
            && let Some(bytes) = own(request, body)
        {
            return head("own").chain_update(bytes).finalize().into();
        }
        if let Some(without) = &self.json
            && let Some(of_type) = json_type(request)
            && let Some(text) = json::canonical(body, without, self.numbers)
        {
            let mut hash = head(match self.numbers {
                Numbers::AsWritten => "json",
                Numbers::ByValue => "json values",
            });
            field(&mut hash, &of_type);
            return hash.chain_update(text).finalize().into();
        }
        if self.multipart
            && let Some(boundary) = boundary(request)
            && let Some(parts) = multipart::parts(body, boundary)
        {
            let mut hash = head("multipart");
            parts.for_each(|part| field(&mut hash, part));
            return hash.finalize().into();
        }
        head("raw").chain_update(body).finalize().into()
    }

    /// The hash of all but the body, which comes last, without length.
    fn head(&self, request: &Parts, uri: &Uri, rule: &str) -> Sha256 {
        let mut hash = Sha256::new();
        let terms = self.terms(request);
        let counted = self.counted(request, terms.as_deref());
        let number = counted.clone().count();
        let is_plain = rule == "raw" && number == 0 && terms.is_none();
        field(&mut hash, if is_plain { PLAIN } else { OTHER });
        field(&mut hash, request.method.as_str().as_bytes());
        field(&mut hash, uri.path().as_bytes());
        // A missing query differs from an empty one.
        hash.update([u8::from(uri.query().is_some())]);
        field(&mut hash, uri.query().unwrap_or_default().as_bytes());
        if is_plain {
            return hash;
        }
        count(&mut hash, number);
        for name in counted {
            let values = request.headers.get_all(name);
            field(&mut hash, name.as_str().as_bytes());
            count(&mut hash, values.iter().count());
            for value in values {
                field(&mut hash, value.as_bytes());
            }
        }
        if let Some(terms) = terms {
            // No rule has this name.
            field(&mut hash, b"payment terms");
            field(&mut hash, &terms);
        }
        field(&mut hash, rule.as_bytes());
        hash
    }
}

/// Hashes a field after its length, so that lists cannot collide.
pub(super) fn field(hash: &mut Sha256, bytes: &[u8]) {
    count(hash, bytes.len());
    hash.update(bytes);
}

fn count(hash: &mut Sha256, number: usize) {
    hash.update((number as u64).to_be_bytes());
}

fn content_type(request: &Parts) -> Option<&HeaderValue> {
    let mut lines = request.headers.get_all(CONTENT_TYPE).iter();
    lines.next().filter(|_| lines.next().is_none())
}

/// The media type of a JSON document, in lower case without parameters.
fn json_type(request: &Parts) -> Option<Vec<u8>> {
    let media_type = media_type(content_type(request)?).to_ascii_lowercase();
    let is_json = media_type == b"application/json" || media_type.ends_with(b"+json");
    is_json.then_some(media_type)
}

fn boundary(request: &Parts) -> Option<&[u8]> {
    multipart::boundary(content_type(request)?.as_bytes())
}

impl fmt::Display for Fingerprinter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("method, path, query, body")?;
        let mut rules = Vec::new();
        if self.own.is_some() {
            rules.push("by a rule of the service's own".to_owned());
        }
        if let Some(without) = &self.json {
            let mut rule = match self.numbers {
                Numbers::AsWritten => "JSON".to_owned(),
                Numbers::ByValue => "JSON by value".to_owned(),
            };
            for pointer in &**without {
                // Writing to a string does not fail.
                let _ = write!(rule, " without {pointer}");
            }
            rules.push(rule);
        }
        if self.multipart {
            rules.push("forms without their boundary".to_owned());
        }
        if !rules.is_empty() {
            write!(f, " ({})", rules.join(", "))?;
        }
        for name in &self.headers {
            write!(f, ", header {name}")?;
        }
        f.write_str(match self.payment {
            Payment::Whole => ", payment",
            Payment::Terms => ", terms of the payment",
            Payment::Nothing => "",
        })
    }
}

debug_fields!(Fingerprinter {
    json,
    numbers,
    multipart,
    own: |it| it.own.is_some(),
    headers,
    payment
});

#[cfg(test)]
mod tests;
