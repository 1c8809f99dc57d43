//! `idem resolve`: an answer by hand, compared with stored ones.

use std::process::ExitCode;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};
use idem_runtime::Engine;
use idem_runtime::admin::{Entry, EntryState};
use idem_runtime::store::OutcomeKind;
use serde_json::{Value, json};

use crate::Session;
use crate::arguments::Resolve;
use crate::failure::Failure;
use crate::key;
use crate::output;
use crate::pace::Pace;
use crate::record;
use crate::sample::{Sample, samples};
use crate::settle::{change, refuse_running, refused};
use crate::state;

/// The most records in a second that are examined for samples.
const RATE: u32 = 10_000;

/// The headers of a response.
type Headers = Vec<(HeaderName, HeaderValue)>;

pub(crate) async fn run(session: &Session, verb: &Resolve) -> Result<ExitCode, Failure> {
    let engine = &session.engine;
    let entry = verb.consent.sign(record::find(engine, &verb.which).await?);
    if verb.sample {
        return show_samples(session, &entry).await;
    }
    let (text, is_error) = match (&verb.value, &verb.error) {
        (Some(value), _) => (key::given(value)?, false),
        (None, Some(error)) => (key::given(error)?, true),
        (None, None) => return Err(Failure::usage("give --value or --error")),
    };
    let headers = headers(&verb.header)?;
    refuse_running(&entry)?;
    let is_answered = match entry.state() {
        EntryState::Answered(_) => !entry.is_by_hand(),
        state => state == EntryState::NotStored,
    };
    if is_answered {
        return Err(Failure::refused(format!(
            "nothing was changed: the record is {}, which its body has written, and no answer by hand replaces that; \
             `idem reset` lets the body run again",
            state::name(&entry)
        )));
    }
    let mut scan = Pace::new(RATE);
    let value = if is_error {
        OutcomeKind::Error
    } else {
        OutcomeKind::Value
    };
    // A record that was reset does not say whether its answers are responses.
    let is_response = entry.is_response()
        || entry.types().is_unknown()
            && (samples(engine, &entry, value, &mut scan)
                .await?
                .found
                .iter())
            .any(|stored| stored.is_response);
    let is_raw = verb.status.is_some() && text.trim().is_empty()
        || is_response && headers.iter().any(is_raw);
    let value_of = serde_json::from_str::<Value>(&text);
    if !is_raw && value_of.is_err() {
        return Err(Failure::usage(
            "the answer is not JSON: a text needs quotation marks, --value '\"ok\"'",
        ));
    }
    if is_response && verb.status.is_none() {
        return Err(Failure::usage(
            "the answers of this operation are responses of the HTTP layer: give --status, and --value with the body",
        ));
    }
    let given = Sample {
        status: verb.status,
        value: value_of.ok(),
        is_response,
    };
    let outcome = match verb.status {
        Some(400..) if is_response => OutcomeKind::Error,
        _ => value,
    };
    let checked = if verb.unchecked {
        "Whether the function can read it is not checked".to_owned()
    } else {
        checked(engine, (&entry, outcome), &given, &mut scan).await?
    };
    let kind = match outcome {
        OutcomeKind::Error => "business error",
        _ => "value",
    };
    let effect = format!(
        "every later call gets this {kind} of {} bytes, as if the body had returned it. {checked}",
        text.trim().len()
    );
    let resolve = async |entry: Entry| {
        let (operation, digest) = (entry.operation().to_owned(), entry.key().to_string());
        let resolved = match verb.status {
            Some(status) if is_response => {
                let response = response(status, headers.clone(), text)?;
                entry.resolve_response(response).await
            }
            Some(status) => entry.resolve_json(&reply(status, &headers, &text)).await,
            None if is_error => entry.resolve_error_json(&text).await,
            None => entry.resolve_json(&text).await,
        };
        resolved.map_err(refused)?;
        effect_of(engine, (&operation, &digest), &headers).await
    };
    let asked = ("resolve", verb.consent.yes);
    change(session, asked, &effect, entry, resolve).await
}

/// The result of a resolution in words, with the headers that the stored response lacks.
async fn effect_of(
    engine: &Engine,
    (operation, digest): (&str, &str),
    headers: &Headers,
) -> Result<String, Failure> {
    let stored = engine.entry(operation, digest).await?;
    let stored = stored.and_then(|entry| entry.stored_answer()?.response());
    let is_lost = |name: &HeaderName| {
        let stored = stored.as_ref();
        stored.is_some_and(|response| !response.headers().contains_key(name))
    };
    let names = headers.iter().map(|(name, _)| name);
    let lost: Vec<_> = names
        .filter(|name| is_lost(name))
        .map(HeaderName::as_str)
        .collect();
    Ok(match &lost[..] {
        [] => "resolved".to_owned(),
        lost => format!(
            "resolved, without the headers {}, which are not stored",
            lost.join(", ")
        ),
    })
}

/// Compares the answer with stored ones. Returns the result in words.
async fn checked(
    engine: &Engine,
    (entry, outcome): (&Entry, OutcomeKind),
    given: &Sample,
    scan: &mut Pace,
) -> Result<String, Failure> {
    let stored = samples(engine, entry, outcome, scan).await?;
    let Some(first) = stored.found.first() else {
        return Err(Failure::refused(format!(
            "nothing was changed: {}, and a mistake would reach every caller as an error; write the JSON that the function's \
             value serializes to, and --unchecked",
            stored.missing()
        )));
    };
    let mut differences = stored.found.iter().map(|stored| stored.differs(given));
    if differences.any(|difference| difference.is_none()) {
        return Ok("It has the form of a stored answer of the operation".to_owned());
    }
    let difference = first.differs(given).unwrap_or_default();
    Err(Failure::refused(format!(
        "nothing was changed: the answer has another form than the stored ones, and callers may get an error: {difference}. \
         Stored: {}. If it is right all the same: --unchecked",
        first.form()
    )))
}

/// Prints each form of stored answers once.
async fn show_samples(session: &Session, entry: &Entry) -> Result<ExitCode, Failure> {
    let mut scan = Pace::new(RATE);
    let (mut forms, mut missing) = (Vec::<(&str, String)>::new(), Vec::new());
    for (option, outcome) in [
        ("--value", OutcomeKind::Value),
        ("--error", OutcomeKind::Error),
    ] {
        let samples = samples(&session.engine, entry, outcome, &mut scan).await?;
        if samples.found.is_empty() {
            missing.push((option, samples.missing()));
        }
        for sample in samples.found {
            let form = (option, sample.form());
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    if session.json {
        let forms = forms
            .iter()
            .map(|(option, form)| json!({ "option": option, "form": form }));
        output::document(&json!({ "samples": forms.collect::<Vec<_>>() }))?;
    } else {
        output::text(|out| {
            forms
                .iter()
                .chain(&missing)
                .try_for_each(|(option, form)| record::field(out, option, form))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn headers(given: &[String]) -> Result<Headers, Failure> {
    let parsed = given.iter().map(|line| {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::try_from(name.trim()).ok()?;
        Some((name, HeaderValue::try_from(value.trim()).ok()?))
    });
    let parsed: Option<Headers> = parsed.collect();
    parsed.ok_or_else(|| {
        Failure::usage("--header is a name, a colon and a value: 'location: /payments/7'")
    })
}

/// Whether the body of a response with this header is no JSON.
fn is_raw((name, value): &(HeaderName, HeaderValue)) -> bool {
    name == CONTENT_TYPE && !value.to_str().is_ok_and(|value| value.contains("json"))
}

/// A response as the HTTP layer stores it.
fn response(status: u16, headers: Headers, body: String) -> Result<Response<String>, Failure> {
    let has_body = !body.trim().is_empty();
    let mut response = Response::builder()
        .status(status)
        .body(if has_body { body } else { String::new() })
        .map_err(|_| Failure::usage("--status is no status of a response"))?;
    let map = response.headers_mut();
    for (name, value) in headers {
        map.append(name, value);
    }
    if has_body {
        map.entry(CONTENT_TYPE)
            .or_insert(HeaderValue::from_static("application/json"));
    }
    Ok(response)
}

/// A handler's `Reply` as its record has it. The value stays as it is: numbers that a `Value` would round are kept.
fn reply(status: u16, headers: &Headers, value: &str) -> String {
    let headers = headers.iter().map(|(name, value)| {
        let value: String = value.as_bytes().iter().copied().map(char::from).collect();
        json!([name.as_str(), value])
    });
    let headers: Vec<Value> = headers.collect();
    let head = json!({ "status": status, "headers": headers });
    let value = match value.trim() {
        "" => "null",
        value => value,
    };
    format!("{{\"$reply\":{head},\"value\":{value}}}")
}
