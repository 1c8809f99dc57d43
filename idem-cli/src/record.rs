//! A record: how it is found, and how it is shown.

use std::io::{self, Write};
use std::time::SystemTime;

use idem_runtime::admin::{Entry, EntryState, StepState};
use idem_runtime::store::OutcomeKind;
use idem_runtime::{Engine, FOREVER};
use serde_json::{Value, json};

use crate::arguments::Which;
use crate::failure::Failure;
use crate::key::{self, Key};
use crate::state;
use crate::text::{duration, millis, moment, printed};

/// Reads the record, with its steps and its answer.
pub(crate) async fn find(engine: &Engine, which: &Which) -> Result<Entry, Failure> {
    let operation = &which.operation;
    let (found, digest) = if let Some(digest) = &which.digest {
        let digest = key::digest(digest)?;
        (engine.entry(operation, &digest.to_string()).await?, digest)
    } else {
        let text = which.key.as_deref().unwrap_or_default();
        let mut key = key::parse("--key", &key::given(text)?)?;
        if let Some(template) = &which.key_format {
            key = key::formatted(template, key)?;
        }
        let scope = which.scope.as_deref();
        let scope = scope.map(|text| key::parse("--scope", text)).transpose()?;
        let call = || {
            let call = engine.operation(operation.clone());
            match &scope {
                Some(scope) => call.scope(&Key(scope)).key(&Key(&key)),
                None => call.public().key(&Key(&key)),
            }
        };
        (call().entry().await?, call().key_digest()?)
    };
    found.ok_or_else(|| {
        Failure::refused(format!(
            "no record of `{operation}` under {digest}: no call was made or its record has expired, or the \
             operation, --prefix, --scope or the form of the key differs (the number 42 and the text \"42\" are two \
             keys); `idem ls {operation}` lists those that are there"
        ))
    })
}

/// A record as JSON.
pub(crate) fn document(entry: &Entry) -> Value {
    let mut document = json!({
        "operation": entry.operation(),
        "digest": entry.key().to_string(),
        "state": state::name(entry),
        "attempts": entry.attempts(),
        "fence": entry.fence().get(),
        "age_ms": millis(entry.age()),
        "left_ms": (entry.left() != FOREVER).then(|| millis(entry.left())),
        "by_hand": entry.is_by_hand(),
        "has_steps": entry.has_steps(),
    });
    if let EntryState::Running { lease_left } = entry.state() {
        document["lease_left_ms"] = millis(lease_left).into();
    }
    if let Some(label) = entry.label() {
        document["label"] = label.into();
    }
    if let Some(bytes) = entry.record_bytes() {
        document["record_bytes"] = bytes.into();
        let steps = entry.steps().into_iter().map(|step| {
            json!({ "name": step.name, "state": step_state(step.state), "at_ms": since_1970(step.at) })
        });
        document["steps"] = steps.collect();
    }
    document
}

pub(crate) fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, millis)
}

fn step_state(state: StepState) -> &'static str {
    match state {
        StepState::Begun => "begun, not finished",
        StepState::Finished(OutcomeKind::Value) => "finished",
        StepState::Finished(OutcomeKind::Error) => "finished with an error",
        StepState::Finished(OutcomeKind::Unknown) => "unknown",
        StepState::Finished(OutcomeKind::Tombstone) => "finished, its result is not stored",
        _ => "other",
    }
}

/// A line of a record's description.
pub(crate) fn field(out: &mut dyn Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{name:<10} {}", printed(value))
}

/// A record for a person, line by line.
pub(crate) fn describe(out: &mut dyn Write, entry: &Entry, max_attempts: u16) -> io::Result<()> {
    let mut field = |name, value: &str| field(out, name, value);
    field("operation", entry.operation())?;
    field("digest", &entry.key().to_string())?;
    if let Some(label) = entry.label() {
        field("label", &label)?;
    }
    let (meaning, _) = state::meaning(entry, max_attempts);
    let age = duration(entry.age());
    field("state", &format!("{}: {meaning}", state::name(entry)))?;
    let attempts = entry.attempts();
    match entry.state() {
        EntryState::Running { lease_left } => {
            let left = duration(lease_left);
            let claim = format!("renewed {age} ago, lapses in {left} unless renewed");
            field("claim", &claim)?;
            field("attempts", &attempts.to_string())?;
        }
        EntryState::Abandoned | EntryState::Released => {
            let limit = "unless the function has another limit: --max-attempts";
            field(
                "attempts",
                &format!("{attempts} of {max_attempts}, {limit}"),
            )?;
        }
        _ => field("attempts", &attempts.to_string())?,
    }
    field("fence", &entry.fence().get().to_string())?;
    let written = SystemTime::now().checked_sub(entry.age());
    let written = written.map_or_else(String::new, |at| format!(" ({})", moment(at)));
    let hand = if entry.is_by_hand() { ", by hand" } else { "" };
    field("written", &format!("{age} ago{written}{hand}"))?;
    let kept = match entry.left() {
        FOREVER => "for ever".to_owned(),
        left => format!("for {} more", duration(left)),
    };
    field("kept", &kept)?;
    if let Some(bytes) = entry.record_bytes() {
        field("size", &format!("{bytes} bytes"))?;
    }
    for (place, step) in entry.steps().into_iter().enumerate() {
        let name = if place == 0 { "steps" } else { "" };
        let (state, at) = (step_state(step.state), moment(step.at));
        field(name, &format!("{}: {state} ({at})", step.name))?;
    }
    Ok(())
}
