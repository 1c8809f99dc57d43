//! `idem show`: everything about a record.

use idem_runtime::admin::{Entry, SentKey};
use idem_runtime::codec::StoredAnswer;
use serde_json::{Value, json};

use crate::Session;
use crate::arguments::Show;
use crate::failure::Failure;
use crate::output;
use crate::record::{self, describe, field};
use crate::state;

pub(crate) async fn run(session: &Session, verb: &Show) -> Result<(), Failure> {
    let entry = record::find(&session.engine, &verb.which).await?;
    let stored = entry.stored_answer();
    let answer = stored.as_ref().filter(|_| verb.value).map(answer);
    if session.json {
        let mut document = record::document(&entry);
        match answer {
            None => {}
            Some(Ok(value)) => document["answer"] = value,
            Some(Err(why)) => document["answer_unreadable"] = why.into(),
        }
        if !verb.derive.is_empty() {
            document["derived"] = verb
                .derive
                .iter()
                .map(|label| derived(&entry, label))
                .collect();
        }
        return output::document(&document);
    }
    output::text(|out| {
        describe(out, &entry, session.max_attempts)?;
        match answer {
            None if stored.is_some() => field(out, "answer", "not shown without --value")?,
            None => {}
            Some(Ok(value)) => field(out, "answer", &value.to_string())?,
            Some(Err(why)) => field(out, "answer", why)?,
        }
        for label in &verb.derive {
            let keys = [
                (format!("derive_key(\"{label}\")"), entry.derive_key(label)),
                (format!("step \"{label}\""), entry.step_key(label)),
            ];
            for (of, sent) in keys {
                let text = match sent {
                    Some(sent) => format!("{of}: {}, in logs {}", sent.key, sent.digest),
                    None => format!("{of}: not known; use --key, and a step has this name alone"),
                };
                field(out, "derived", &text)?;
            }
        }
        if !verb.derive.is_empty() && verb.which.digest.is_some() && !session.has_digest_key {
            let note = "only if the service has no `digest_key`: otherwise use --digest-key-file and --key";
            field(out, "", note)?;
        }
        let (_, advice) = state::meaning(&entry, session.max_attempts);
        advice.map_or(Ok(()), |advice| field(out, "next", advice))
    })
}

/// The keys that the call sends to other parties.
fn derived(entry: &Entry, label: &str) -> Value {
    let keys = |sent: Option<SentKey>| {
        sent.map(|sent| json!({ "key": sent.key, "digest": sent.digest.to_string() }))
    };
    json!({
        "label": label,
        "derive_key": keys(entry.derive_key(label)),
        "step": keys(entry.step_key(label)),
    })
}

/// The answer, or why it cannot be shown.
fn answer(stored: &StoredAnswer) -> Result<Value, &'static str> {
    if let Some(response) = stored.response() {
        let (parts, body) = response.into_parts();
        let headers = parts
            .headers
            .iter()
            .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]));
        let body = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body)));
        return Ok(json!({
            "status": parts.status.as_u16(),
            "headers": headers.collect::<Vec<_>>(),
            "body": body,
        }));
    }
    let unreadable = if stored.is_encrypted() {
        "encrypted; --encryption-key-file ID:FILE reads it, with the key that wrote it"
    } else {
        "no value that can be shown: it is of a feature that this build has not"
    };
    stored.decode().map_err(|_| unreadable)
}
