use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

use super::*;
use crate::error::{Error, ErrorKind};
use crate::http::key::KeyRefusal;
use crate::http::status::KeyVerdict;
use crate::identity::operation::Operation;

/// A problem of each code, in the order of [`CODES`].
fn problems() -> Vec<Problem> {
    let of = |kind| Problem::from(&Error::new(kind, Operation::new("shop.api")));
    let retry_after = Duration::from_millis(1_500);
    vec![
        KeyRefusal::Missing.into(),
        KeyRefusal::Repeated.into(),
        Problem::caller_unknown(),
        of(ErrorKind::TokenInvalid),
        of(ErrorKind::TokenExpired),
        of(ErrorKind::Running { retry_after }),
        of(ErrorKind::Duplicate { retry_after }),
        Problem::body_unreadable(),
        Problem::body_timeout(retry_after),
        Problem::body_too_large(7),
        of(ErrorKind::Mismatch),
        of(ErrorKind::QuotaExceeded),
        of(ErrorKind::Unknown {
            since: SystemTime::UNIX_EPOCH,
        }),
        of(ErrorKind::Exhausted { attempts: 5 }),
        of(ErrorKind::NotStored),
        of(ErrorKind::NoEngine),
        of(ErrorKind::Unconfirmed),
        of(ErrorKind::TooManyRunning),
        of(ErrorKind::StoreUnavailable),
    ]
}

fn body(response: &Response<String>) -> Value {
    serde_json::from_str(response.body()).unwrap()
}

/// The text of the panic of a setting that is a mistake.
fn mistake<T>(set: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(set()))) else {
        panic!("it was accepted");
    };
    let panic = panic.downcast::<String>().map(|text| *text);
    panic.unwrap_or_else(|panic| (*panic.downcast::<&str>().unwrap()).to_owned())
}

/// The table is for users, and the list checks rows.
#[test]
fn the_codes_are_those_of_the_table_of_problems() {
    let table = include_str!("../problem.rs").lines();
    let rows = table.filter_map(|line| line.strip_prefix("/// | <a id=\"")?.split('"').next());
    let mut documented: Vec<_> = rows.collect();
    let made: Vec<_> = problems().iter().map(Problem::code).collect();
    assert_eq!(made, CODES);
    let mut codes = CODES.to_vec();
    codes.sort_unstable();
    documented.sort_unstable();
    assert_eq!(documented, codes);
    // A layer has no tokens.
    let of_layer = |code: &&str| !code.starts_with("token-");
    let requests = include_str!("../mod.rs");
    for code in codes.into_iter().filter(of_layer) {
        assert!(requests.contains(&format!("`{code}`")), "{code}");
    }
}

#[test]
fn problems_are_the_documents_of_problems() {
    for problem in problems() {
        let problem = problem
            .instance("urn:one")
            .documented_at("https://api.example.com");
        let (said, plain) = (
            Refusals::problems().response(&problem),
            problem.into_response(),
        );
        assert_eq!(said.status(), plain.status());
        assert_eq!(said.headers(), plain.headers());
        assert_eq!(said.body(), plain.body());
        let verdict =
            |response: &Response<String>| response.extensions().get::<KeyVerdict>().copied();
        assert_eq!(verdict(&said), verdict(&plain));
    }
}

#[test]
fn a_row_rewords_a_problem_document() {
    let row = Refusal::new(StatusCode::CONFLICT)
        .code("key-conflict")
        .of_type("https://api.example.com/conflict")
        .message("Take another key.")
        .retry_after(Duration::from_millis(2_001))
        .header("X-Reason", "reuse")
        .header("content-type", "application/vnd.example+json");
    let refusals = Refusals::problems().on("key-reused", row);
    for problem in problems() {
        let code = problem.code();
        let plain = problem.clone().instance("urn:one").into_response();
        let response = refusals.response(&problem.instance("urn:one"));
        if code != "key-reused" {
            assert_eq!(response.headers(), plain.headers(), "{code}");
            assert_eq!(response.body(), plain.body(), "{code}");
            continue;
        }
        assert_eq!(response.status(), 409);
        let headers = response.headers();
        assert_eq!(headers["retry-after"], "3");
        assert_eq!(headers["x-reason"], "reuse");
        assert_eq!(headers["content-type"], "application/vnd.example+json");
        assert_eq!(headers["link"], plain.headers()["link"]);
        let mut document = body(&plain);
        document["status"] = 409.into();
        document["code"] = "key-conflict".into();
        document["type"] = "https://api.example.com/conflict".into();
        document["detail"] = "Take another key.".into();
        assert_eq!(body(&response), document);
    }
}

#[test]
fn a_template_has_the_values_of_the_problem_where_no_row_has_others() {
    let template = json!({
        "status": "{status}",
        "code": "{code}",
        "type": "{type}",
        "message": "{message}",
        "instance": "{instance}",
        "retry_after": "{retry_after}",
        "all": "{status} {code}: {retry_after}{status}",
        "list": ["{retry_after}", 1, null, true, ["{code}"]],
        "{code}": "{ code } {} {Code} {code",
    });
    let refusals = Refusals::json(template);
    let response = |problem: Problem| refusals.response(&problem.instance("urn:one"));
    for problem in problems() {
        let (code, detail) = (problem.code(), problem.detail().to_owned());
        let plain = problem.clone().into_response();
        let response = response(problem);
        let retry_after = plain.headers().get("retry-after");
        assert_eq!(response.status(), plain.status(), "{code}");
        assert_eq!(response.headers().get("retry-after"), retry_after, "{code}");
        assert_eq!(response.headers()["content-type"], "application/json");
        // Its default describes problem documents.
        assert_eq!(response.headers().get("link"), None, "{code}");
        let status = plain.status().as_u16();
        let seconds = retry_after.map(|seconds| seconds.to_str().unwrap());
        let number: Option<Value> = seconds.map(|seconds| seconds.parse::<u32>().unwrap().into());
        let mut expected = json!({
            "status": status,
            "code": code,
            "type": body(&plain)["type"],
            "message": detail,
            "instance": "urn:one",
            "all": format!("{status} {code}: {}{status}", seconds.unwrap_or_default()),
            "list": [1, null, true, [code]],
            "{code}": "{ code } {} {Code} {code",
        });
        if let Some(number) = number {
            expected["retry_after"] = number.clone();
            expected["list"].as_array_mut().unwrap().insert(0, number);
        }
        assert_eq!(body(&response), expected, "{code}");
    }
    let documented = Problem::body_too_large(7).documented_at("https://api.example.com");
    let documented = response(documented);
    assert_eq!(
        documented.headers()["link"],
        "<https://api.example.com>; rel=\"describedby\"; type=\"text/html\""
    );
    assert_eq!(
        body(&documented)["type"],
        "https://api.example.com#body-too-large"
    );
}

/// The words of a row are put in once, whatever they contain.
#[test]
fn words_with_braces_are_no_placeholders() {
    let row = Refusal::default()
        .code("{message}")
        .message("{code} \"quoted\" {x}");
    let refusals = Refusals::json(json!(["{code}", "{code}; {message}"])).on("key-reused", row);
    let mut problems = problems();
    let reused = problems.swap_remove(10);
    assert_eq!(reused.code(), "key-reused");
    let response = refusals.response(&reused);
    assert_eq!(
        response.status(),
        422,
        "what a row leaves open is the problem's"
    );
    let expected = json!(["{message}", "{message}; {code} \"quoted\" {x}"]);
    assert_eq!(body(&response), expected);
}

#[test]
fn the_last_row_and_the_body_of_a_row_apply() {
    let refusals = Refusals::json(json!("{code}"))
        .on(
            "key-missing",
            Refusal::new(StatusCode::CONFLICT).code("one"),
        )
        .on(
            "key-missing",
            Refusal::default().json(json!({ "is": "{code}" })),
        );
    let missing = refusals.response(&KeyRefusal::Missing.into());
    assert_eq!(missing.status(), 400);
    assert_eq!(body(&missing), json!({ "is": "key-missing" }));
    let empty = refusals.response(&KeyRefusal::Empty.into());
    assert_eq!(body(&empty), json!("key-invalid"));
    let only = Refusals::problems().on(
        "key-missing",
        Refusal::default().json(json!("{retry_after}")),
    );
    let missing = only.response(&KeyRefusal::Missing.into());
    assert_eq!(missing.headers()["content-type"], "application/json");
    assert_eq!(body(&missing), Value::Null);
}

#[test]
fn a_mistake_is_found_when_the_value_is_made() {
    for status in [100, 101, 200, 204, 301, 304, 399, 600, 999] {
        let status = StatusCode::from_u16(status).unwrap();
        let text = mistake(|| Refusal::new(status));
        let expected = format!(
            "a refusal cannot have the status {}: clients",
            status.as_u16()
        );
        assert!(text.starts_with(&expected), "{text}");
    }
    for status in [400, 419, 499, 500, 599] {
        let _ = Refusal::new(StatusCode::from_u16(status).unwrap());
    }
    for code in ["", "key_reused", "KEY-REUSED", "409"] {
        let text = mistake(|| Refusals::problems().on(code, Refusal::default()));
        let expected = format!("no problem has the code {code:?}; the codes are key-missing, ");
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.ends_with(", unavailable"), "{text}");
    }
    let header = |name: &str, value: &str| {
        let (name, value) = (name.to_owned(), value.to_owned());
        mistake(move || Refusal::default().header(name, value))
    };
    for (name, value, expected) in [
        (
            "not a name",
            "1",
            "no header can have the name \"not a name\"",
        ),
        ("x-a:", "1", "no header can have the name \"x-a:\""),
        (
            "x-a",
            "a\r\nb: c",
            "the header `x-a` of a refusal has a value that no header can have",
        ),
        (
            "Retry-After",
            "1",
            "`Retry-After` of a refusal is set by `Refusal::retry_after`",
        ),
        (
            "Content-Length",
            "1",
            "a refusal cannot set the header `content-length`",
        ),
        (
            "Transfer-Encoding",
            "chunked",
            "a refusal cannot set the header `transfer-encoding`",
        ),
        (
            "Connection",
            "close",
            "a refusal cannot set the header `connection`",
        ),
        (
            "Idempotent-Replayed",
            "true",
            "a refusal cannot set the header `idempotent-replayed`",
        ),
    ] {
        let text = header(name, value);
        assert!(text.starts_with(expected), "{text}");
    }
    let templates = [
        json!("{mesage}"),
        json!(["{code}", { "a": "text {code} {mesage}" }]),
    ];
    for template in templates {
        let expected = "no placeholder is named {mesage}; the placeholders are {status}, {code}, {type}, {message}, \
                        {instance}, {retry_after}";
        let of_all = template.clone();
        assert_eq!(mistake(|| Refusals::json(of_all)), expected);
        assert_eq!(mistake(|| Refusal::default().json(template)), expected);
    }
}

#[test]
fn a_value_is_printed_as_one_line() {
    assert_eq!(Refusals::problems().to_string(), "problems");
    let row = Refusal::new(StatusCode::CONFLICT)
        .code("conflict")
        .of_type("invalid")
        .message("Take another\nkey.")
        .retry_after(Duration::ZERO)
        .header("x-reason", "reuse")
        .json(json!({ "a": "{code}" }));
    let refusals = Refusals::json(json!(["{code}"]))
        .on("unavailable", Refusal::default().code("down"))
        .on("key-reused", row);
    assert_eq!(
        refusals.to_string(),
        "json [\"{code}\"]; key-reused: 409, code conflict, type invalid, message \"Take another\\nkey.\", retry after 1 \
         s, x-reason \"reuse\", json {\"a\":\"{code}\"}; unavailable: code down"
    );
}

/// The words of each refusal: code, status, values of these members.
///
/// The body has no other member but the text for people, which is left out.
fn words(refusals: &Refusals, members: &[&str]) -> String {
    let mut words = String::new();
    for problem in problems() {
        let code = problem.code();
        let response = refusals.response(&problem);
        let headers = response.headers();
        let plain = problem.clone().into_response();
        let retry_after = plain.headers().get("retry-after");
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers.get("retry-after"), retry_after, "{code}");
        let verdict = response.extensions().get();
        assert_eq!(verdict, Some(&KeyVerdict::Release), "{code}");
        let body = body(&response);
        let mut values: Vec<_> = members.iter().filter_map(|it| body.pointer(it)).collect();
        assert_eq!(values.len(), leaves(&body), "{code}: {body}");
        values.retain(|value| *value != problem.detail());
        assert!(values.len() < leaves(&body), "no text: {code}: {body}");
        write!(words, "{code} {}", response.status().as_u16()).unwrap();
        for value in values {
            let word = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            write!(words, " {word}").unwrap();
        }
        words.push('\n');
    }
    words
}

fn leaves(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.values().map(leaves).sum(),
        _ => 1,
    }
}

#[test]
fn stripe_has_its_types_and_codes() {
    let members = ["/error/type", "/error/code", "/error/message"];
    let expected = "\
key-missing 400 invalid_request_error key_missing
key-invalid 400 invalid_request_error key_invalid
caller-unknown 403 invalid_request_error caller_unknown
token-invalid 403 invalid_request_error token_invalid
token-expired 403 invalid_request_error token_expired
request-running 409 invalid_request_error idempotency_key_in_use
request-repeated 409 invalid_request_error request_repeated
body-unreadable 400 invalid_request_error body_unreadable
body-timeout 408 invalid_request_error body_timeout
body-too-large 413 invalid_request_error body_too_large
key-reused 400 idempotency_error
quota-exceeded 429 invalid_request_error rate_limit
outcome-unknown 500 api_error outcome_unknown
attempts-exhausted 500 api_error attempts_exhausted
answer-lost 500 api_error answer_lost
misconfigured 500 api_error misconfigured
answer-unconfirmed 503 api_error answer_unconfirmed
too-many-running 503 api_error too_many_running
unavailable 503 api_error unavailable
";
    assert_eq!(words(&Refusals::stripe(), &members), expected);
}

/// Sections 6.1 and 6.4, and the closed list of error types.
#[test]
fn acp_has_its_types_and_codes() {
    let expected = "\
key-missing 400 invalid_request idempotency_key_required
key-invalid 400 invalid_request key_invalid
caller-unknown 403 invalid_request caller_unknown
token-invalid 403 invalid_request token_invalid
token-expired 403 invalid_request token_expired
request-running 409 invalid_request idempotency_in_flight
request-repeated 409 invalid_request request_repeated
body-unreadable 400 invalid_request body_unreadable
body-timeout 408 invalid_request body_timeout
body-too-large 413 invalid_request body_too_large
key-reused 422 invalid_request idempotency_conflict
quota-exceeded 429 service_unavailable quota_exceeded
outcome-unknown 500 processing_error outcome_unknown
attempts-exhausted 500 processing_error attempts_exhausted
answer-lost 500 processing_error answer_lost
misconfigured 500 processing_error misconfigured
answer-unconfirmed 503 service_unavailable answer_unconfirmed
too-many-running 503 service_unavailable too_many_running
unavailable 503 service_unavailable unavailable
";
    let words = words(&Refusals::acp(), &["/type", "/code", "/message"]);
    assert_eq!(words, expected);
}

#[test]
fn ucp_has_a_code_and_a_content() {
    let mut expected = String::new();
    for problem in problems() {
        let code = problem.code();
        let status = match code {
            "request-running" => 503,
            "key-reused" => 409,
            _ => problem.status().as_u16(),
        };
        writeln!(expected, "{code} {status} {}", code.replace('-', "_")).unwrap();
    }
    assert_eq!(words(&Refusals::ucp(), &["/code", "/content"]), expected);
}

#[test]
fn iceberg_has_no_conflict_and_its_types() {
    let members = ["/error/code", "/error/type", "/error/message"];
    let expected = "\
key-missing 400 400 BadRequestException
key-invalid 400 400 BadRequestException
caller-unknown 403 403 NotAuthorizedException
token-invalid 403 403 NotAuthorizedException
token-expired 403 403 NotAuthorizedException
request-running 503 503 ServiceUnavailableException
request-repeated 500 500 CommitStateUnknownException
body-unreadable 400 400 BadRequestException
body-timeout 408 408 BadRequestException
body-too-large 413 413 BadRequestException
key-reused 422 422 UnprocessableEntityException
quota-exceeded 429 429 SlowDownException
outcome-unknown 500 500 CommitStateUnknownException
attempts-exhausted 500 500 CommitStateUnknownException
answer-lost 500 500 CommitStateUnknownException
misconfigured 500 500 ServiceFailureException
answer-unconfirmed 503 503 ServiceUnavailableException
too-many-running 503 503 SlowDownException
unavailable 503 503 ServiceUnavailableException
";
    assert_eq!(words(&Refusals::iceberg(), &members), expected);
}
