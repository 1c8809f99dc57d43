//! Servers that meet a specification but for one thing.

use std::future::ready;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn, map_request, map_response};
use axum::response::{IntoResponse as _, Json, Response};
use idem_conformance::http::Specification;
use idem_runtime::http::{Fingerprinter, IdempotencyLayer, KeyDomain, KeyRules, KeyVerdict};
use idem_runtime::testing::Fault;
use idem_runtime::{OnOutage, OnRunning};
use serde_json::{Value, json};

use super::shop::{HANG_LIMIT, ShopSetup, WAIT};

/// A server that meets a specification but for one thing.
pub(super) struct PlantedServer {
    pub(super) name: &'static str,
    pub(super) change: fn(&mut ShopSetup),
    /// The specifications, and the rows that fail, in their order.
    pub(super) fails: &'static [(Specification, &'static str)],
}

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Changes each response.
fn changed(
    router: Router,
    change: impl Fn(&mut Response) + Clone + Send + Sync + 'static,
) -> Router {
    router.layer(map_response(move |mut response: Response| {
        change(&mut response);
        ready(response)
    }))
}

/// The verdict about the key of a response with this status.
fn verdict(router: Router, of: u16, verdict: KeyVerdict) -> Router {
    changed(router, move |response| {
        if response.status() == of {
            response.extensions_mut().insert(verdict);
        }
    })
}

fn without_header(router: Router, name: &'static str) -> Router {
    changed(router, move |response| {
        response.headers_mut().remove(name);
    })
}

/// Another status in place of this one.
fn with_status(router: Router, from: u16, to: u16) -> Router {
    changed(router, move |response| {
        if response.status() == from {
            *response.status_mut() = StatusCode::from_u16(to).unwrap();
        }
    })
}

/// Refusals without one member of their JSON.
fn without_member(router: Router, pointer: &'static str, member: &'static str) -> Router {
    router.layer(map_response(move |response: Response| async move {
        if response.status().as_u16() < 400 {
            return response;
        }
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let body = match serde_json::from_slice::<Value>(&body) {
            Ok(mut value) => {
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

/// A key that every layer accepts, made of these bytes.
fn key_of(bytes: impl Hash) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let digest = hasher.finish();
    HeaderValue::try_from(format!("\"{digest:016x}{digest:016x}\"")).unwrap()
}

/// Any lines of the key are a key.
async fn with_any_key(mut request: Request) -> Request {
    let lines: Vec<_> = request.headers().get_all(KEY).iter().collect();
    if !lines.is_empty() {
        let key = key_of(lines);
        request.headers_mut().insert(KEY, key);
    }
    request
}

/// The body is the key.
async fn with_body_as_key(request: Request) -> Request {
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    if parts.headers.contains_key(KEY) {
        parts.headers.insert(KEY, key_of(&body));
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
    changed(router, |response| {
        let marked = HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, marked);
    })
}

/// Another number of the order is the same order.
fn of_any_number(layer: IdempotencyLayer) -> IdempotencyLayer {
    layer.fingerprint(Fingerprinter::new().of(|_, _| Some(Vec::new())))
}

/// Bodies are equal by the values of their JSON, after this change.
fn by_value(layer: IdempotencyLayer, change: fn(&mut Value)) -> IdempotencyLayer {
    layer.fingerprint(Fingerprinter::new().of(move |_, body| {
        let mut value: Value = serde_json::from_slice(body).ok()?;
        change(&mut value);
        // Not an integer in one request and a decimal in the other.
        let quantity = value["quantity"].as_f64();
        value["quantity"] = quantity.into();
        // The order of members is kept where another crate enables `preserve_order`.
        value.sort_all_objects();
        Some(value.to_string().into_bytes())
    }))
}

fn without_extension(value: &mut Value) {
    if let Some(members) = value.as_object_mut() {
        members.remove("extension");
    }
}

fn sorted(value: &mut Value) {
    if let Some(Value::Array(items)) = value.get_mut("items") {
        items.sort_by_key(Value::to_string);
    }
}

/// A catalog's configuration that has no lifetime of keys.
async fn without_lifetime(request: Request, next: Next) -> Response {
    if request.uri().path() == "/v1/config" {
        return Json(json!({ "defaults": {}, "overrides": {} })).into_response();
    }
    next.run(request).await
}

/// Terms of payment with a version and no extension.
fn with_plain_terms(router: Router) -> Router {
    changed(router, |response| {
        if let Some(terms) = response.headers_mut().get_mut("payment-required") {
            *terms = HeaderValue::from_static("eyJ4NDAyVmVyc2lvbiI6MiwiYWNjZXB0cyI6W119");
        }
    })
}

macro_rules! plants {
    ($($name:literal $change:expr => { $($of:ident: $fails:literal)+ })+) => {
        pub(super) const PLANTS: &[PlantedServer] = &[$(PlantedServer {
            name: $name,
            change: $change,
            fails: &[$((Specification::$of, $fails)),+],
        }),+];
    };
}

plants! {
    "no layer" |setup| {
        setup.is_layered = false;
        setup.waits = Some(WAIT);
    } => {
        Draft: "post patch bare list twice ascii unique owner retry retry_of_4xx retry_of_5xx one_effect concurrent \
            streaming missing reused running conflict_needs_no_correction validated composite suite_missing suite_empty \
            suite_long suite_commas suite_other_body suite_retries suite_running suite_store"
        StripeV1: "post saved saved_4xx saved_500 one_effect compared too_long kept conflict_not_saved running \
            streaming replayed replayed_500 endpoint account"
        StripeV2: "post delete success one_effect compared running after_running kept account"
        Acp: "echo every_post too_long empty identity path required blank member_order null decimal array_order \
            headers replay replay_of_4xx update replayed replayed_4xx one_effect conflict in_flight retry_after \
            retryable kept extensions"
        Ucp: "post put kept cached conflict conflict_code weak client operation recommended one_effect raw_blank \
            raw_order fail_closed running after_running"
        X402: "paid cached one_effect other_terms other_request required too_short too_long characters signed_anew \
            running after_running"
        IcebergRest: "kept post delete one_effect replayed replayed_4xx one_uuid version_4 no_uuid other_request \
            other_operation running after_running error_of_key error_of_conflict"
    }
    "callers share keys" |setup| setup.is_scoped = false => {
        Draft: "composite"
        StripeV1: "account"
        StripeV2: "account"
        Acp: "identity"
        Ucp: "client"
    }
    "a repeat of a running request waits" |setup| {
        setup.set = |layer| layer.on_running(OnRunning::Wait(HANG_LIMIT));
        setup.waits = Some(WAIT);
    } => {
        Draft: "concurrent running suite_running"
        StripeV1: "running"
        Acp: "in_flight retry_after"
    }
    "streams are not recorded" |setup| setup.set = |layer| layer.record_streams(false) => {
        Draft: "streaming"
        StripeV1: "streaming"
    }
    "500 is released" |setup| setup.inside = |it| verdict(it, 500, KeyVerdict::Release) => {
        Draft: "retry_of_5xx"
        StripeV1: "saved_500 replayed_500"
    }
    "402 is released" |setup| setup.inside = |it| verdict(it, 402, KeyVerdict::Release) => {
        Draft: "retry_of_4xx"
        StripeV1: "saved_4xx"
        Acp: "replay_of_4xx replayed_4xx"
    }
    "400 is stored" |setup| setup.inside = |it| verdict(it, 400, KeyVerdict::Store) => {
        StripeV1: "validation"
    }
    // The status of slow orders alone.
    "200 is released" |setup| setup.inside = |it| verdict(it, 200, KeyVerdict::Release) => {
        Draft: "streaming conflict_needs_no_correction"
        StripeV1: "conflict_not_saved streaming"
        StripeV2: "after_running"
        Acp: "retryable"
        Ucp: "running after_running"
        X402: "running after_running"
        IcebergRest: "running after_running"
    }
    "201 is released" |setup| setup.inside = |it| verdict(it, 201, KeyVerdict::Release) => {
        Draft: "post patch unique retry one_effect reused composite suite_other_body suite_retries"
        StripeV1: "post saved one_effect compared kept replayed endpoint account"
        StripeV2: "post delete success one_effect compared kept account"
        Acp: "every_post identity path blank member_order null decimal array_order headers replay update replayed \
            one_effect conflict kept extensions"
        Ucp: "post put kept cached conflict conflict_code client operation recommended one_effect raw_blank \
            raw_order"
        X402: "paid cached one_effect other_terms other_request signed_anew"
        IcebergRest: "kept post delete one_effect replayed one_uuid other_request other_operation error_of_conflict"
    }
    "any string is a key, in quotation marks or without" |setup| setup.set = |it| it.keys(KeyRules::default()) => {
        Draft: "bare"
        Acp: "opaque"
        Ucp: "weak"
        X402: "too_short too_long characters"
        IcebergRest: "one_uuid version_4 no_uuid error_of_key"
    }
    "any text is a key" |setup| setup.around = |it| it.layer(map_request(with_any_key)) => {
        Draft: "bare list twice ascii owner validated suite_empty suite_long suite_commas"
        StripeV1: "too_long"
    }
    "long keys" |setup| setup.set = |it| it.keys(KeyRules::default().bare(false).max_chars(900)) => {
        Draft: "suite_long"
    }
    "bare long keys" |setup| setup.set = |it| it.keys(KeyRules::default().verbatim().max_chars(900)) => {
        StripeV1: "too_long"
        Acp: "too_long"
    }
    "keys of 36 characters" |setup| setup.set = |it| it.keys(KeyRules::default().bare(false).max_chars(36)) => {
        Draft: "escapes"
    }
    "UUIDs alone are keys" |setup| {
        setup.set = |it| it.keys(KeyRules::default().accept(|key| key.len() == 36 && key.split('-').count() == 5));
    } => {
        StripeV1: "length any_text"
        Acp: "opaque length"
    }
    "no parameters of keys" |setup| setup.around = |it| refusing(it, |it| key_line(it).contains(&b';')) => {
        Draft: "parameters"
    }
    "a key is not required" |setup| setup.set = IdempotencyLayer::optional => {
        Draft: "missing suite_missing"
        Acp: "required"
        X402: "required"
    }
    "a key is required" |setup| {
        setup.around = |it| refusing(it, |it| it.method() == Method::POST && key_line(it).is_empty());
    } => {
        StripeV1: "optional"
        StripeV2: "optional"
        IcebergRest: "optional"
    }
    "POST alone" |setup| setup.set = |it| it.methods([Method::POST]) => {
        Draft: "patch"
        StripeV2: "delete"
        Ucp: "put"
        IcebergRest: "delete"
    }
    "every method" |setup| {
        setup.set = |it| it.optional().methods([Method::POST, Method::PATCH, Method::PUT, Method::DELETE, Method::GET]);
    } => {
        Draft: "missing suite_missing suite_get suite_put suite_delete"
        StripeV1: "get delete"
        StripeV2: "get"
        Ucp: "get"
        IcebergRest: "get"
    }
    "bodies do not count" |setup| setup.set = of_any_number => {
        Draft: "unique reused suite_other_body"
        StripeV1: "compared"
        StripeV2: "compared"
        Acp: "null array_order conflict extensions"
        Ucp: "conflict conflict_code raw_blank raw_order"
        X402: "other_request signed_anew"
        IcebergRest: "other_request error_of_conflict"
    }
    "a body is its key" |setup| setup.around = |it| it.layer(map_request(with_body_as_key)) => {
        Draft: "bare list twice ascii unique owner other_key reused validated suite_empty suite_long suite_commas \
            suite_other_body"
        StripeV1: "compared too_long"
    }
    "keys live for two months" |setup| setup.set = |it| it.ttl(Duration::from_secs(60 * 24 * 3_600)) => {
        Draft: "expiry"
        StripeV1: "pruned"
        StripeV2: "expired"
        Acp: "expired"
        Ucp: "expired"
        IcebergRest: "expired"
    }
    "keys live for a minute" |setup| setup.set = |it| it.ttl(Duration::from_secs(60)) => {
        StripeV1: "kept"
        StripeV2: "kept"
        Acp: "kept"
        Ucp: "kept recommended"
        IcebergRest: "kept"
    }
    "no protection in an outage" |setup| {
        setup.set = |it| it.on_outage(OnOutage::Run);
        setup.fault = Fault::Unreachable;
    } => {
        Draft: "suite_store"
        Ucp: "fail_closed"
    }
    "no type of refusals" |setup| setup.around = |it| without_member(it, "", "type") => {
        Draft: "suite_missing suite_empty suite_long suite_commas suite_other_body suite_running suite_store"
        Acp: "too_long empty required null array_order conflict in_flight retry_after extensions"
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
        StripeV2: "compared"
        IcebergRest: "error_of_key error_of_conflict"
    }
    "no code of errors" |setup| setup.around = |it| without_member(it, "/error", "code") => {
        StripeV1: "running streaming"
    }
    "423 in place of 409" |setup| setup.around = |it| with_status(it, 409, 423) => {
        Draft: "concurrent streaming running suite_running"
        StripeV1: "running streaming"
        Acp: "in_flight retry_after"
        Ucp: "conflict conflict_code raw_blank raw_order"
        X402: "other_terms other_request"
    }
    "409 in place of 422" |setup| setup.around = |it| with_status(it, 422, 409) => {
        Draft: "unique reused suite_other_body"
        Acp: "null array_order conflict extensions"
    }
    "422 in place of 400" |setup| setup.around = |it| with_status(it, 400, 422) => {
        Draft: "bare list twice ascii owner missing validated suite_missing suite_empty suite_long suite_commas"
        StripeV1: "compared too_long endpoint"
        Acp: "too_long empty required"
        Ucp: "weak"
        X402: "required too_short too_long characters"
        IcebergRest: "version_4 no_uuid error_of_key"
    }
    "replays have no mark" |setup| setup.around = |it| without_header(it, "idempotent-replayed") => {
        StripeV1: "replayed replayed_500"
        Acp: "replayed replayed_4xx"
    }
    "every answer has the mark of a replay" |setup| setup.around = marked => {
        Draft: "string parameters escapes other_key expiry first composite suite_put suite_delete suite_empty_body"
        StripeV1: "optional length any_text pruned delete replayed replayed_500 account"
        StripeV2: "optional failure expired account"
        Acp: "opaque length identity path replayed replayed_4xx not_cached expired"
        Ucp: "entropy client operation expired"
        X402: "new shortest longest"
        IcebergRest: "optional not_5xx version_7 capitals expired"
    }
    "the handler runs twice" |setup| setup.inside = |it| it.layer(from_fn(twice)) => {
        Draft: "string parameters escapes unique other_key first one_effect streaming reused composite \
            suite_other_body suite_retries suite_put suite_delete suite_empty_body"
        StripeV1: "optional one_effect compared length any_text kept delete streaming endpoint account"
        StripeV2: "optional one_effect compared kept account"
        Acp: "opaque length identity path blank member_order null decimal array_order headers one_effect conflict \
            kept extensions"
        Ucp: "kept conflict conflict_code entropy client operation recommended one_effect raw_blank raw_order"
        X402: "new one_effect other_terms other_request shortest longest signed_anew"
        IcebergRest: "kept optional one_effect version_7 capitals one_uuid other_request other_operation \
            error_of_conflict"
    }
    "no body is refused" |setup| {
        setup.around = |it| refusing(it, |it| {
            it.method() == Method::POST && it.headers().get("content-length").is_none_or(|it| it == "0")
        });
    } => {
        Draft: "suite_empty_body"
    }
    "500 is stored" |setup| setup.inside = |it| verdict(it, 500, KeyVerdict::Store) => {
        StripeV2: "failure"
        Acp: "not_cached"
        IcebergRest: "not_5xx"
    }
    "409 is released" |setup| setup.inside = |it| verdict(it, 409, KeyVerdict::Release) => {
        IcebergRest: "replayed_4xx"
    }
    "bodies count byte by byte" |setup| setup.set = |it| it.fingerprint(Fingerprinter::new()) => {
        Acp: "blank member_order decimal"
        X402: "signed_anew"
    }
    "numbers count as they are written" |setup| setup.set = |it| it.fingerprint(Fingerprinter::new().json()) => {
        Acp: "decimal"
        Ucp: "raw_blank raw_order"
    }
    "extensions do not count" |setup| setup.set = |it| by_value(it, without_extension) => {
        Acp: "null extensions"
    }
    "arrays have no order" |setup| setup.set = |it| by_value(it, sorted) => {
        Acp: "array_order"
    }
    "a header counts" |setup| {
        setup.set = |it| it.fingerprint(Fingerprinter::new().json_values().header("x-conformance"));
    } => {
        Acp: "headers"
    }
    "paths share keys" |setup| setup.set = |it| it.key_domain(KeyDomain::Caller) => {
        Acp: "path"
        Ucp: "operation"
    }
    "keys live for 30 hours" |setup| setup.set = |it| it.ttl(Duration::from_secs(30 * 3_600)) => {
        Ucp: "recommended"
    }
    "no code of refusals" |setup| setup.around = |it| without_member(it, "", "code") => {
        Acp: "too_long empty required null array_order conflict in_flight retry_after extensions"
    }
    "no time of a retry" |setup| setup.around = |it| without_header(it, "retry-after") => {
        Acp: "retry_after"
    }
    "no echo" |setup| setup.set = |it| it.echo_key(false) => {
        Acp: "echo"
    }
    "the case of a key counts" |setup| {
        setup.set = |it| it.keys(KeyRules::default().accept(|key| key.len() == 36 && key.as_bytes()[14] == b'7'));
    } => {
        IcebergRest: "one_uuid"
    }
    "keys in lower case" |setup| {
        setup.around = |it| refusing(it, |it| key_line(it).iter().any(u8::is_ascii_uppercase));
    } => {
        IcebergRest: "capitals one_uuid"
    }
    "keys of 36 characters alone" |setup| {
        setup.set = |it| it.keys(KeyRules::default().accept(|key| key.len() == 36));
    } => {
        X402: "shortest longest"
    }
    "423 in place of 422" |setup| setup.around = |it| with_status(it, 422, 423) => {
        IcebergRest: "other_request other_operation error_of_conflict"
    }
    "a catalog without keys" |setup| setup.around = |it| it.layer(from_fn(without_lifetime)) => {
        IcebergRest: "lifetime kept"
    }
    "402 without terms" |setup| setup.around = |it| without_header(it, "payment-required") => {
        X402: "challenge paid advertised required"
    }
    "terms without an extension" |setup| setup.around = with_plain_terms => {
        X402: "advertised required"
    }
    "the settlement is not stored" |setup| setup.set = |it| it.never_store(["payment-response"]) => {
        X402: "settlement"
    }
    "terms of payment do not count" |setup| setup.set = |it| it.fingerprint(Fingerprinter::new().ignore_payment()) => {
        X402: "other_terms"
    }
    "paths have keys of their own" |setup| setup.set = |it| it.key_domain(KeyDomain::Path) => {
        StripeV1: "endpoint"
        IcebergRest: "other_operation"
    }
}
