//! `idem resolve`: an answer by hand, compared with stored ones.

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use idem_runtime::admin::{Entry, EntryState};
use idem_runtime::store::OutcomeKind;
use serde_json::{Value, json};

use crate::Session;
use crate::arguments::Resolve;
use crate::failure::Failure;
use crate::key;
use crate::output;
use crate::record;
use crate::sample::{Sample, Samples};
use crate::settle::{change, refuse_running};
use crate::state;

type Headers = Vec<(HeaderName, HeaderValue)>;

pub(crate) async fn run(session: &Session, verb: &Resolve) -> Result<(), Failure> {
    let engine = &session.engine;
    let text = given_text(verb)?;
    let entry = record::find(&session.engine, &verb.which).await?;
    let entry = verb.consent.sign(entry);
    if verb.sample {
        return show_samples(session, &entry).await;
    }
    let is_error = verb.error.is_some();
    let text = key::given(text)?;
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
    let value = if is_error {
        OutcomeKind::Error
    } else {
        OutcomeKind::Value
    };
    // A record that was reset does not say whether its answers are responses.
    let mut stored = Samples::default();
    if !verb.unchecked || entry.types().is_unknown() {
        stored = Samples::read(engine, &entry, value).await?;
    }
    let is_response = entry.is_response()
        || entry.types().is_unknown() && stored.found.iter().any(|stored| stored.is_response);
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
        "Whether the function can read it is not checked"
    } else {
        if outcome != value {
            stored = Samples::read(engine, &entry, outcome).await?;
        }
        stored.check(&given)?;
        "It has the form of a stored answer of the operation"
    };
    let kind = match outcome {
        OutcomeKind::Error => "business error",
        _ => "value",
    };
    let effect = format!(
        "every later call gets this {kind} of {} bytes, as if the body had returned it. {checked}",
        text.trim().len()
    );
    let resolve = async |entry: Entry| match verb.status {
        Some(status) if is_response => {
            let response = response(status, &headers, &text);
            entry.resolve_response(response).await
        }
        Some(status) => entry.resolve_json(&reply(status, &headers, &text)).await,
        None if is_error => entry.resolve_error_json(&text).await,
        None => entry.resolve_json(&text).await,
    };
    let verbs = ["resolve", "resolved"];
    let after = change(session, (verbs, verb.consent.yes), &effect, entry, resolve).await?;
    let stored = after.and_then(|entry| entry.stored_answer()?.response());
    let is_lost = |name: &&str| {
        let stored = stored.as_ref();
        stored.is_some_and(|response| !response.headers().contains_key(*name))
    };
    let names = headers.iter().map(|(name, _)| name.as_str());
    let lost: Vec<_> = names.filter(is_lost).collect();
    if !lost.is_empty() {
        let lost = lost.join(", ");
        let note = format!("without the headers {lost}, which are not stored");
        output::beside(session.json, |out| writeln!(out, "{note}"))?;
    }
    Ok(())
}

/// The answer as the options have it.
fn given_text(verb: &Resolve) -> Result<&str, Failure> {
    let text = verb.value.as_deref().or(verb.error.as_deref());
    if text == Some("-") && verb.which.key.as_deref() == Some("-") {
        return Err(Failure::usage(
            "`-` reads stdin, which is either the key or the answer",
        ));
    }
    Ok(text.unwrap_or_default())
}

/// Prints each form of stored answers once.
async fn show_samples(session: &Session, entry: &Entry) -> Result<(), Failure> {
    let mut forms = Vec::<(&str, String)>::new();
    for (option, outcome) in [
        ("--value", OutcomeKind::Value),
        ("--error", OutcomeKind::Error),
    ] {
        let samples = Samples::read(&session.engine, entry, outcome).await?;
        if samples.found.is_empty() && !session.json {
            forms.push((option, samples.missing()));
        }
        forms.extend((samples.found.iter()).map(|sample| (option, sample.form())));
    }
    // Those of an option follow each other.
    forms.sort();
    forms.dedup();
    if session.json {
        let forms = forms
            .iter()
            .map(|(option, form)| json!({ "option": option, "form": form }));
        output::document(&json!({ "samples": forms.collect::<Vec<_>>() }))
    } else {
        output::text(|out| {
            forms
                .iter()
                .try_for_each(|(option, form)| record::field(out, option, form))
        })
    }
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

/// A response as the HTTP layer stores it. Its status is one of 200 to 599.
fn response(status: u16, headers: &Headers, body: &str) -> Response<String> {
    let body = if body.trim().is_empty() { "" } else { body };
    let mut response = Response::new(body.to_owned());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    let map = response.headers_mut();
    map.extend(headers.iter().cloned());
    if !body.is_empty() && !map.contains_key(CONTENT_TYPE) {
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
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
