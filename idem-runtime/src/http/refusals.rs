//! The wording of refusals: status, body and headers by code.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ::http::header::RETRY_AFTER;
use ::http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::headers::header_name;
use super::problem::{CODES, PROBLEM_JSON, Problem, Wording, whole_seconds};

/// The type of a body that is made from a template.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Headers that no refusal sets. `Retry-After` has a setter of its own.
const NOT_OWN: [&str; 10] = [
    "connection",
    "content-encoding",
    "content-length",
    "idempotent-replayed",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The wording of refusals: status, body and headers by code.
///
/// For the API of a partner that fixes them. [`problems`](Self::problems), the default, are documents after RFC 9457;
/// [`json`](Self::json) makes every body from a template. A [row](Self::on) changes the refusals of one
/// [code](Problem); open parts are the problem's own.
///
/// [`IdempotencyLayer::refusals`](super::IdempotencyLayer::refusals) applies it to a layer. A closure of
/// [`on_problem`](super::IdempotencyLayer::on_problem) or [`on_problem_with`](super::IdempotencyLayer::on_problem_with)
/// takes precedence.
///
/// A value is printed (`Display`) as one line.
///
/// ```
/// use http::StatusCode;
/// use idem_runtime::http::{KeyRefusal, Problem, Refusal, Refusals};
/// use serde_json::json;
///
/// let refusals = Refusals::json(json!({ "error": { "code": "{code}", "text": "{message}", "status": "{status}" } }))
///     .on("key-missing", Refusal::new(StatusCode::PRECONDITION_REQUIRED).code("KEY_NEEDED").message("Send a key."));
///
/// let response = refusals.response(&KeyRefusal::Missing.into());
/// assert_eq!(response.status(), 428);
/// assert_eq!(response.headers()["content-type"], "application/json");
/// let body: serde_json::Value = serde_json::from_str(response.body())?;
/// assert_eq!(body, json!({ "error": { "code": "KEY_NEEDED", "text": "Send a key.", "status": 428 } }));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it does nothing until a layer has it"]
pub struct Refusals {
    /// The body; `None`: a problem document.
    template: Option<Value>,
    rows: BTreeMap<&'static str, Refusal>,
}

/// The wording of the refusals of one code: a row of [`Refusals`].
///
/// Open parts are the problem's. `Refusal::default()` leaves everything open, the status too.
#[derive(Clone, Debug, Default)]
#[must_use = "it does nothing until `Refusals::on` takes it"]
pub struct Refusal {
    status: Option<StatusCode>,
    code: Option<Cow<'static, str>>,
    of_type: Option<Cow<'static, str>>,
    message: Option<Cow<'static, str>>,
    retry_after: Option<u32>,
    headers: HeaderMap,
    template: Option<Value>,
}

impl Refusals {
    /// Problem documents, as [`Problem::into_response`] makes them.
    ///
    /// A row changes the members `status`, `code`, `type` and `detail`.
    pub fn problems() -> Self {
        Self::default()
    }

    /// Bodies of type `application/json`, made from a template.
    ///
    /// In its strings these placeholders are replaced, but not in the names of members:
    ///
    /// | placeholder | value |
    /// |---|---|
    /// | `{status}` | the status of the response |
    /// | `{code}` | the row's word, or the [code](Problem) of the problem |
    /// | `{type}` | the row's word, or the URI that is the problem's `type` |
    /// | `{message}` | the row's text, or the problem's [`detail`](Problem::detail) |
    /// | `{instance}` | the URI of this occurrence: see [`Problem::instance`] |
    /// | `{retry_after}` | the seconds of `Retry-After` |
    ///
    /// A string that is nothing but `{status}` or `{retry_after}` becomes a number; in a response without `Retry-After`
    /// its member or element is left out. None of the values comes from the request, the store or a stored answer.
    ///
    /// The response has a `Link` to the documentation only if the layer names
    /// [one](super::IdempotencyLayer::documented_at).
    ///
    /// # Panics
    ///
    /// If a string has another name in braces: a mistyped placeholder would reach clients.
    pub fn json(template: Value) -> Self {
        Self {
            template: Some(checked(template)),
            rows: BTreeMap::new(),
        }
    }

    /// The errors of [Stripe's API](https://docs.stripe.com/api/errors).
    ///
    /// `{"error": {"type", "code", "message"}}`: a reused key is a 400 `idempotency_error`, without a code as in
    /// version 1; a running request, a 409 `idempotency_key_in_use`, which Stripe's SDKs repeat. Other codes are those
    /// of [`Problem`] with `_` for `-`.
    pub fn stripe() -> Self {
        let error =
            json!({ "error": { "type": "{type}", "code": "{code}", "message": "{message}" } });
        Self::json(error)
            .typed(
                "invalid_request_error",
                "key-missing key-invalid caller-unknown token-invalid token-expired request-repeated body-unreadable \
                 body-timeout body-too-large",
            )
            .typed(
                "api_error",
                "outcome-unknown attempts-exhausted answer-lost misconfigured answer-unconfirmed too-many-running \
                 unavailable",
            )
            .on(
                "key-reused",
                Refusal::new(StatusCode::BAD_REQUEST)
                    .json(json!({ "error": { "type": "idempotency_error", "message": "{message}" } })),
            )
            .on(
                "request-running",
                Refusal::new(StatusCode::CONFLICT)
                    .code("idempotency_key_in_use")
                    .of_type("invalid_request_error"),
            )
            .on(
                "quota-exceeded",
                Refusal::new(StatusCode::TOO_MANY_REQUESTS)
                    .code("rate_limit")
                    .of_type("invalid_request_error"),
            )
    }

    /// The errors of the Agentic Commerce Protocol, release 2026-04-17.
    ///
    /// `{"type", "code", "message"}`, after sections 6.1 and 6.4 of its
    /// [agentic checkout](https://github.com/agentic-commerce-protocol/agentic-commerce-protocol/blob/main/rfcs/rfc.agentic_checkout.md):
    /// a missing key is a 400 `idempotency_key_required`; a reused one, a 422 `idempotency_conflict`; a running request,
    /// a 409 `idempotency_in_flight`. Other codes are those of [`Problem`] with `_` for `-`.
    pub fn acp() -> Self {
        const INVALID_REQUEST: &str = "invalid_request";
        let error = json!({ "type": "{type}", "code": "{code}", "message": "{message}" });
        Self::json(error)
            .typed(
                INVALID_REQUEST,
                "key-invalid caller-unknown token-invalid token-expired request-repeated body-unreadable body-timeout \
                 body-too-large",
            )
            .typed(
                "processing_error",
                "outcome-unknown attempts-exhausted answer-lost misconfigured",
            )
            // Its schema of a checkout has no type for limits.
            .typed(
                "service_unavailable",
                "quota-exceeded answer-unconfirmed too-many-running unavailable",
            )
            .on(
                "key-missing",
                Refusal::new(StatusCode::BAD_REQUEST)
                    .code("idempotency_key_required")
                    .of_type(INVALID_REQUEST),
            )
            .on(
                "key-reused",
                Refusal::new(StatusCode::UNPROCESSABLE_ENTITY)
                    .code("idempotency_conflict")
                    .of_type(INVALID_REQUEST),
            )
            .on(
                "request-running",
                Refusal::new(StatusCode::CONFLICT)
                    .code("idempotency_in_flight")
                    .of_type(INVALID_REQUEST),
            )
    }

    /// The protocol errors of the Universal Commerce Protocol, as of 2026-08-22.
    ///
    /// `{"code", "content"}`, after [Error handling](https://github.com/Universal-Commerce-Protocol/ucp/blob/main/docs/specification/overview/index.md):
    /// a reused key is a 409, which asks for another key, and so a running request a 503. Its words for idempotency are not specified; the codes are those of [`Problem`] with `_`
    /// for `-`.
    pub fn ucp() -> Self {
        let error = json!({ "code": "{code}", "content": "{message}" });
        let refusals = CODES.into_iter().fold(Self::json(error), |refusals, code| {
            refusals.on(code, Refusal::default().code(snake_case(code)))
        });
        let reused = Refusal::new(StatusCode::CONFLICT).code(snake_case("key-reused"));
        let running =
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE).code(snake_case("request-running"));
        refusals
            .on("key-reused", reused)
            .on("request-running", running)
    }

    /// The errors of [Iceberg's REST catalog](https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml).
    ///
    /// `{"error": {"message", "type", "code"}}`, where `code` is the status. A reused key is a 422.
    ///
    /// A running request is a 503 with `Retry-After`, which clients repeat with the same key. No refusal is a 409: to a
    /// client that commits it says that nothing was committed, and the client commits anew under another key. What may
    /// have been done is a 500 `CommitStateUnknownException`.
    pub fn iceberg() -> Self {
        let error =
            json!({ "error": { "message": "{message}", "type": "{type}", "code": "{status}" } });
        Self::json(error)
            .typed(
                "BadRequestException",
                "key-missing key-invalid body-unreadable body-timeout body-too-large",
            )
            .typed(
                "NotAuthorizedException",
                "caller-unknown token-invalid token-expired",
            )
            .typed("UnprocessableEntityException", "key-reused")
            .typed("SlowDownException", "quota-exceeded too-many-running")
            .typed(
                "CommitStateUnknownException",
                "outcome-unknown attempts-exhausted answer-lost",
            )
            .typed("ServiceFailureException", "misconfigured")
            .typed(
                "ServiceUnavailableException",
                "answer-unconfirmed unavailable",
            )
            .on(
                "request-running",
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE)
                    .of_type("ServiceUnavailableException"),
            )
            .on(
                "request-repeated",
                Refusal::new(StatusCode::INTERNAL_SERVER_ERROR)
                    .of_type("CommitStateUnknownException"),
            )
    }

    /// Rows of one type for these problems, with codes in snake case.
    fn typed(self, of_type: &'static str, codes: &str) -> Self {
        codes.split(' ').fold(self, |refusals, code| {
            let refusal = Refusal::default().code(snake_case(code));
            refusals.on(code, refusal.of_type(of_type))
        })
    }

    /// Adds a row: the wording of the refusals of this [code](Problem).
    ///
    /// It replaces an earlier row for the code.
    ///
    /// # Panics
    ///
    /// If no problem has this code: a mistyped row would change nothing.
    pub fn on(mut self, code: &str, refusal: Refusal) -> Self {
        let Some(code) = CODES.into_iter().find(|known| *known == code) else {
            let codes = CODES.join(", ");
            panic!("no problem has the code {code:?}; the codes are {codes}");
        };
        self.rows.insert(code, refusal);
        self
    }

    /// The response of a refusal in this wording.
    ///
    /// A layer calls it for its own refusals; a handler, for the error of a call that it made (`Problem::from(&error)`).
    #[must_use]
    pub fn response(&self, problem: &Problem) -> Response<String> {
        let row = self.rows.get(problem.code());
        let mut wording = problem.wording();
        if let Some(row) = row {
            row.reword(&mut wording);
        }
        let own = row.and_then(|row| row.template.as_ref());
        let mut response = match own.or(self.template.as_ref()) {
            None => {
                let document = problem.document(&wording);
                problem.respond(&wording, PROBLEM_JSON, document)
            }
            Some(template) => {
                // The default page describes problem documents.
                if !problem.is_documented() {
                    wording.documented_at = None;
                }
                let body = filled(template, &wording).unwrap_or_default();
                problem.respond(&wording, JSON, body.to_string())
            }
        };
        if let Some(row) = row {
            for (name, value) in &row.headers {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response
    }
}

impl Refusal {
    /// A row with this status.
    ///
    /// # Panics
    ///
    /// If the status is no 4xx and no 5xx: clients would take the refusal for an answer.
    pub fn new(status: StatusCode) -> Self {
        assert!(
            status.is_client_error() || status.is_server_error(),
            "a refusal cannot have the status {}: clients would take it for the answer to their request; use a 4xx or a \
             5xx",
            status.as_u16()
        );
        Self {
            status: Some(status),
            ..Self::default()
        }
    }

    /// The machine-readable word of this refusal.
    pub fn code(mut self, code: impl Into<Cow<'static, str>>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The word for the type of this refusal.
    ///
    /// In a problem document it is the member `type`, a URI.
    pub fn of_type(mut self, of_type: impl Into<Cow<'static, str>>) -> Self {
        self.of_type = Some(of_type.into());
        self
    }

    /// The human-readable explanation.
    ///
    /// It is the same for every request, and has no placeholders.
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// The delay of `Retry-After`, in place of the problem's own.
    ///
    /// It is sent in seconds, rounded up, and at least 1.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(whole_seconds(delay));
        self
    }

    /// Adds a header to the response, replacing its own.
    ///
    /// # Panics
    ///
    /// If no header can have this name or this value; for `Retry-After`, which [`retry_after`](Self::retry_after) sets;
    /// and for a header of the connection (`Connection`, `Transfer-Encoding`, …), of the body's form (`Content-Length`,
    /// `Content-Encoding`) or of a replay (`Idempotent-Replayed`).
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        let name = header_name(name.as_ref());
        assert!(
            name != RETRY_AFTER,
            "`Retry-After` of a refusal is set by `Refusal::retry_after`"
        );
        assert!(
            !NOT_OWN.contains(&name.as_str()),
            "a refusal cannot set the header `{name}`: it is of the connection, follows from the body, or marks a replay"
        );
        let Ok(value) = HeaderValue::try_from(value.as_ref()) else {
            panic!(
                "the header `{name}` of a refusal has a value that no header can have; write it without control characters"
            );
        };
        self.headers.insert(name, value);
        self
    }

    /// A body of this refusal alone, made from a template.
    ///
    /// It replaces the template of [`Refusals::json`], or the problem document.
    ///
    /// # Panics
    ///
    /// As [`Refusals::json`].
    pub fn json(mut self, template: Value) -> Self {
        self.template = Some(checked(template));
        self
    }

    /// Puts the words of the row in place of the problem's.
    fn reword<'a>(&'a self, wording: &mut Wording<'a>) {
        if let Some(status) = self.status {
            wording.status = status;
        }
        if let Some(code) = &self.code {
            wording.code = code;
        }
        if let Some(of_type) = &self.of_type {
            wording.of_type = Cow::Borrowed(of_type);
        }
        if let Some(message) = &self.message {
            wording.message = message;
        }
        wording.retry_after = self.retry_after.or(wording.retry_after);
    }
}

fn snake_case(code: &str) -> String {
    code.replace('-', "_")
}

/// A placeholder: its name, and its value in a response, if any.
type Place = (&'static str, fn(&Wording<'_>) -> Option<Value>);

const PLACES: [Place; 6] = [
    ("status", |it| Some(it.status.as_u16().into())),
    ("code", |it| Some(it.code.into())),
    ("type", |it| Some(it.of_type.as_ref().into())),
    ("message", |it| Some(it.message.into())),
    ("instance", |it| Some(it.instance.as_ref().into())),
    ("retry_after", |it| it.retry_after.map(Value::from)),
];

fn place(name: &str) -> Option<&'static Place> {
    PLACES.iter().find(|(known, _)| *known == name)
}

/// Splits a text at its first name in braces: before, name, after.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let mut open = text.find('{')?;
    loop {
        let inner = &text[open + 1..];
        let end = inner.find(|c: char| !c.is_ascii_lowercase() && c != '_')?;
        let (name, rest) = inner.split_at(end);
        if let Some(rest) = rest.strip_prefix('}')
            && !name.is_empty()
        {
            return Some((&text[..open], name, rest));
        }
        open += 1 + inner.find('{')?;
    }
}

/// The template, whose placeholders all exist.
fn checked(template: Value) -> Value {
    fn check(template: &Value) {
        match template {
            Value::String(text) => {
                let mut rest = text.as_str();
                while let Some((_, name, after)) = split(rest) {
                    let known = PLACES.map(|(known, _)| format!("{{{known}}}")).join(", ");
                    assert!(
                        place(name).is_some(),
                        "no placeholder is named {{{name}}}; the placeholders are {known}"
                    );
                    rest = after;
                }
            }
            Value::Array(elements) => elements.iter().for_each(check),
            Value::Object(members) => members.values().for_each(check),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    check(&template);
    template
}

fn value(name: &str, wording: &Wording<'_>) -> Option<Value> {
    place(name).and_then(|(_, value)| value(wording))
}

/// The text with the values in it, which are not searched again.
fn filled_text(text: &str, wording: &Wording<'_>) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, name, after)) = split(rest) {
        filled.push_str(before);
        match value(name, wording) {
            Some(Value::String(text)) => filled.push_str(&text),
            Some(number) => filled.push_str(&number.to_string()),
            None => {}
        }
        rest = after;
    }
    filled + rest
}

/// The body of a template; `None`: a placeholder without a value.
fn filled(template: &Value, wording: &Wording<'_>) -> Option<Value> {
    Some(match template {
        Value::String(text) => {
            if let Some(("", name, "")) = split(text) {
                value(name, wording)?
            } else {
                filled_text(text, wording).into()
            }
        }
        Value::Array(elements) => {
            let elements = elements.iter().filter_map(|inner| filled(inner, wording));
            elements.collect()
        }
        Value::Object(members) => {
            let member =
                |(name, inner): (&String, _)| Some((name.clone(), filled(inner, wording)?));
            members.iter().filter_map(member).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => template.clone(),
    })
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.template {
            None => f.write_str("problems")?,
            Some(template) => write!(f, "json {template}")?,
        }
        for (code, row) in &self.rows {
            write!(f, "; {code}: {row}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(status) = self.status {
            parts.push(status.as_u16().to_string());
        }
        for (name, text) in [("code", &self.code), ("type", &self.of_type)] {
            parts.extend(text.as_ref().map(|text| format!("{name} {text}")));
        }
        parts.extend((self.message.as_ref()).map(|text| format!("message {text:?}")));
        parts.extend((self.retry_after).map(|seconds| format!("retry after {seconds} s")));
        let headers = self.headers.iter();
        parts.extend(headers.map(|(name, value)| format!("{name} {value:?}")));
        parts.extend((self.template.as_ref()).map(|template| format!("json {template}")));
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests;
