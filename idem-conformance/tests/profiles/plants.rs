//! Servers that meet a specification but for one thing.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn, map_request, map_response};
use axum::response::{IntoResponse as _, Response};
use idem_conformance::http::Specification;
use idem_runtime::http::{Fingerprinter, IdempotencyLayer, KeyRules, KeyVerdict};
use idem_runtime::testing::Fault;
use idem_runtime::{OnOutage, OnRunning};
use serde_json::Value;

use super::shop::{HANG_LIMIT, Setup, WAIT};

/// A server that meets a specification but for one thing.
pub(super) struct Plant {
    pub(super) name: &'static str,
    pub(super) plant: fn(&mut Setup),
    /// The specifications, and the rows that fail, in their order.
    pub(super) fails: &'static [(Specification, &'static str)],
}

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The verdict about the key of a response with this status.
fn verdict(router: Router, of: u16, verdict: KeyVerdict) -> Router {
    router.layer(map_response(move |mut response: Response| async move {
        if response.status() == of {
            response.extensions_mut().insert(verdict);
        }
        response
    }))
}

fn without_header(router: Router, name: &'static str) -> Router {
    router.layer(map_response(move |mut response: Response| async move {
        response.headers_mut().remove(name);
        response
    }))
}

/// Another status in place of this one.
fn with_status(router: Router, from: u16, to: u16) -> Router {
    router.layer(map_response(move |mut response: Response| async move {
        if response.status() == from {
            *response.status_mut() = StatusCode::from_u16(to).unwrap();
        }
        response
    }))
}

/// Refusals without one member of their JSON.
fn without_member(router: Router, pointer: &'static str, member: &'static str) -> Router {
    router.layer(map_response(move |response: Response| async move {
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let body = match serde_json::from_slice::<Value>(&body) {
            Ok(mut value) if parts.status.as_u16() >= 400 => {
                if let Some(Value::Object(members)) = value.pointer_mut(pointer) {
                    members.remove(member);
                }
                value.to_string().into_bytes().into()
            }
            _ => body,
        };
        let mut response = Response::from_parts(parts, Body::from(body));
        response.headers_mut().remove("content-length");
        response
    }))
}

/// A request that this refuses does not reach the layer.
fn refusing(router: Router, is_refused: fn(&Request) -> bool) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| async move {
        if is_refused(&request) {
            return (StatusCode::BAD_REQUEST, "refused").into_response();
        }
        next.run(request).await
    }))
}

fn key_line(request: &Request) -> &[u8] {
    request
        .headers()
        .get(KEY)
        .map_or(b"", HeaderValue::as_bytes)
}

/// The lines of the key, in a form that every layer accepts.
async fn with_any_key(mut request: Request) -> Request {
    let lines: Vec<_> = request.headers().get_all(KEY).iter().collect();
    let text: Vec<_> = lines.iter().map(|line| format!("{line:?}")).collect();
    if !text.is_empty() {
        let hex: String = text
            .concat()
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let tail = hex.len().saturating_sub(200);
        let key = HeaderValue::try_from(format!("\"{}\"", &hex[tail..])).unwrap();
        request.headers_mut().insert(KEY, key);
    }
    request
}

/// The body is the key.
async fn with_body_as_key(request: Request) -> Request {
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    if parts.headers.contains_key(KEY) {
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        let tail = hex.len().saturating_sub(200);
        let key = HeaderValue::try_from(format!("\"k{}\"", &hex[tail..])).unwrap();
        parts.headers.insert(KEY, key);
    }
    Request::from_parts(parts, Body::from(body))
}

/// The handler runs twice for a request.
async fn twice(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    if parts.uri.path() != "/slow" {
        let first = Request::from_parts(parts.clone(), Body::from(body.clone()));
        next.clone().run(first).await;
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

fn marked(router: Router) -> Router {
    router.layer(map_response(|mut response: Response| async {
        let marked = HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, marked);
        response
    }))
}

/// Requests to refunds are orders.
async fn with_one_path(mut request: Request) -> Request {
    if request.uri().path() == "/refunds" {
        *request.uri_mut() = Uri::from_static("/orders");
    }
    request
}

/// Another number of the order is the same order.
fn of_any_number(layer: IdempotencyLayer) -> IdempotencyLayer {
    layer.fingerprint(Fingerprinter::new().of(|_, _| Some(Vec::new())))
}

macro_rules! plants {
    ($($name:literal $plant:expr => { $($of:ident: $fails:literal)+ })+) => {
        pub(super) const PLANTS: &[Plant] = &[$(Plant {
            name: $name,
            plant: $plant,
            fails: &[$((Specification::$of, $fails)),+],
        }),+];
    };
}

plants! {
    "no layer" |setup| {
        setup.is_layered = false;
        setup.waits = WAIT;
    } => {
        Draft: "post patch bare list twice ascii unique owner retry retry_of_4xx retry_of_5xx one_effect concurrent \
            missing reused running conflict_needs_no_correction validated composite suite_missing suite_empty \
            suite_long suite_commas suite_other_body suite_retries suite_running suite_store"
        StripeV1: "post saved saved_4xx saved_500 one_effect compared too_long kept conflict_not_saved running \
            replayed replayed_500 endpoint account"
    }
    "callers share keys" |setup| setup.is_scoped = false => {
        Draft: "composite"
        StripeV1: "account"
    }
    "a repeat of a running request waits" |setup| {
        setup.set = |layer| layer.on_running(OnRunning::Wait(HANG_LIMIT));
        setup.waits = WAIT;
    } => {
        Draft: "concurrent running suite_running"
        StripeV1: "running"
    }
    "500 is released" |setup| setup.inside = |it| verdict(it, 500, KeyVerdict::Release) => {
        Draft: "retry_of_5xx"
        StripeV1: "saved_500 replayed_500"
    }
    "402 is released" |setup| setup.inside = |it| verdict(it, 402, KeyVerdict::Release) => {
        Draft: "retry_of_4xx"
        StripeV1: "saved_4xx"
    }
    "400 is stored" |setup| setup.inside = |it| verdict(it, 400, KeyVerdict::Store) => {
        StripeV1: "validation"
    }
    // The status of slow orders alone.
    "200 is released" |setup| setup.inside = |it| verdict(it, 200, KeyVerdict::Release) => {
        Draft: "conflict_needs_no_correction"
        StripeV1: "conflict_not_saved"
    }
    "201 is released" |setup| setup.inside = |it| verdict(it, 201, KeyVerdict::Release) => {
        Draft: "post patch unique retry one_effect reused composite suite_other_body suite_retries"
        StripeV1: "post saved one_effect compared kept replayed endpoint account"
    }
    "keys without quotation marks" |setup| setup.set = |it| it.keys(KeyRules::default()) => {
        Draft: "bare"
    }
    "any text is a key" |setup| setup.around = |it| it.layer(map_request(with_any_key)) => {
        Draft: "bare list twice ascii owner validated suite_empty suite_long suite_commas"
        StripeV1: "too_long"
    }
    "long keys" |setup| setup.set = |it| it.keys(KeyRules::default().bare(false).max_chars(900)) => {
        Draft: "suite_long"
    }
    "bare long keys" |setup| setup.set = |it| it.keys(KeyRules::default().max_chars(900)) => {
        StripeV1: "too_long"
    }
    "keys of 36 characters" |setup| setup.set = |it| it.keys(KeyRules::default().bare(false).max_chars(36)) => {
        Draft: "escapes"
    }
    "UUIDs alone are keys" |setup| {
        setup.set = |it| it.keys(KeyRules::default().accept(|key| key.len() == 36 && key.split('-').count() == 5));
    } => {
        StripeV1: "length any_text"
    }
    "no parameters of keys" |setup| setup.around = |it| refusing(it, |it| key_line(it).contains(&b';')) => {
        Draft: "parameters"
    }
    "a key is not required" |setup| setup.set = IdempotencyLayer::optional => {
        Draft: "missing suite_missing"
    }
    "a key is required" |setup| {
        setup.around = |it| refusing(it, |it| it.method() == Method::POST && key_line(it).is_empty());
    } => {
        StripeV1: "optional"
    }
    "PATCH alone" |setup| {
        setup.set = |it| it.methods([Method::PATCH]);
        setup.waits = WAIT;
    } => {
        Draft: "post bare list twice ascii unique owner retry retry_of_4xx retry_of_5xx one_effect concurrent \
            missing reused running conflict_needs_no_correction validated composite suite_missing suite_empty \
            suite_long suite_commas suite_other_body suite_retries suite_running suite_store"
        StripeV1: "post saved saved_4xx saved_500 one_effect compared too_long kept conflict_not_saved running \
            replayed replayed_500 endpoint account"
    }
    "POST alone" |setup| setup.set = |it| it.methods([Method::POST]) => {
        Draft: "patch"
    }
    "every method" |setup| {
        setup.set = |it| it.optional().methods([Method::POST, Method::PATCH, Method::PUT, Method::DELETE, Method::GET]);
    } => {
        Draft: "missing suite_missing suite_get suite_put suite_delete"
        StripeV1: "get delete"
    }
    "bodies do not count" |setup| setup.set = of_any_number => {
        Draft: "unique reused suite_other_body"
        StripeV1: "compared"
    }
    "a body is its key" |setup| setup.around = |it| it.layer(map_request(with_body_as_key)) => {
        Draft: "bare list twice ascii unique owner reused validated suite_empty suite_long suite_commas \
            suite_other_body other_key"
        StripeV1: "compared too_long"
    }
    "paths do not count" |setup| setup.around = |it| it.layer(map_request(with_one_path)) => {
        StripeV1: ""
    }
    "keys live for two months" |setup| setup.set = |it| it.ttl(Duration::from_hours(1_440)) => {
        Draft: "expiry"
        StripeV1: "pruned"
    }
    "keys live for an hour" |setup| setup.set = |it| it.ttl(Duration::from_hours(1)) => {
        StripeV1: "kept"
    }
    "no protection in an outage" |setup| {
        setup.set = |it| it.on_outage(OnOutage::Run);
        setup.fault = Fault::Unreachable;
    } => {
        Draft: "suite_store"
    }
    "no type of refusals" |setup| setup.around = |it| without_member(it, "", "type") => {
        Draft: "suite_missing suite_empty suite_long suite_commas suite_other_body suite_running suite_store"
    }
    "no link of refusals" |setup| setup.around = |it| without_header(without_member(it, "", "type"), "link") => {
        Draft: "missing reused running suite_missing suite_empty suite_long suite_commas suite_other_body \
            suite_running suite_store"
    }
    "no instance of refusals" |setup| setup.around = |it| without_member(it, "", "instance") => {
        Draft: "suite_missing suite_empty suite_long suite_commas suite_other_body suite_running suite_store"
    }
    "no type of errors" |setup| setup.around = |it| without_member(it, "/error", "type") => {
        StripeV1: "compared too_long endpoint"
    }
    "no code of errors" |setup| setup.around = |it| without_member(it, "/error", "code") => {
        StripeV1: "running"
    }
    "423 in place of 409" |setup| setup.around = |it| with_status(it, 409, 423) => {
        Draft: "concurrent running suite_running"
        StripeV1: "running"
    }
    "409 in place of 422" |setup| setup.around = |it| with_status(it, 422, 409) => {
        Draft: "unique reused suite_other_body"
    }
    "422 in place of 400" |setup| setup.around = |it| with_status(it, 400, 422) => {
        Draft: "bare list twice ascii owner missing validated suite_missing suite_empty suite_long suite_commas"
        StripeV1: "compared too_long endpoint"
    }
    "replays have no mark" |setup| setup.around = |it| without_header(it, "idempotent-replayed") => {
        StripeV1: "replayed replayed_500"
    }
    "every answer has the mark of a replay" |setup| setup.around = marked => {
        Draft: "string parameters escapes expiry first composite other_key suite_put suite_delete suite_empty_body"
        StripeV1: "optional length any_text pruned delete replayed replayed_500 account"
    }
    "the handler runs twice" |setup| setup.inside = |it| it.layer(from_fn(twice)) => {
        Draft: "string parameters escapes unique first one_effect reused composite suite_other_body other_key \
            suite_retries suite_put suite_delete suite_empty_body"
        StripeV1: "optional one_effect compared length any_text kept delete endpoint account"
    }
    "no body is refused" |setup| {
        setup.around = |it| refusing(it, |it| {
            it.method() == Method::POST && it.headers().get("content-length").is_none_or(|it| it == "0")
        });
    } => {
        Draft: "suite_empty_body"
    }
}
