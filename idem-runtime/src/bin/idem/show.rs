//! `idem show`: everything about a record.

use std::process::ExitCode;

use idem_runtime::Engine;
use idem_runtime::admin::Entry;
use serde_json::Value;

use crate::arguments::Show;
use crate::failure::Failure;
use crate::output::Output;
use crate::record::{self, describe, field};
use crate::state;

/// The answer of a record, as far as it may be shown.
enum Answer {
    /// The record has none.
    None,
    /// It was not asked for.
    Hidden,
    Value(Value),
    Unreadable(String),
}

pub(crate) async fn run(
    engine: &Engine,
    verb: &Show,
    max_attempts: u16,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let entry = record::find(engine, &verb.which).await?;
    let answer = answer(&entry, verb.value);
    if output.json {
        let mut document = record::document(&entry);
        match answer {
            Answer::None | Answer::Hidden => {}
            Answer::Value(value) => document["answer"] = value,
            Answer::Unreadable(why) => document["answer_unreadable"] = why.into(),
        }
        Output::document(&document)?;
        return Ok(ExitCode::SUCCESS);
    }
    Output::text(|out| {
        describe(out, &entry, max_attempts)?;
        match answer {
            Answer::None => {}
            Answer::Hidden => field(out, "answer", "not shown without --value")?,
            Answer::Value(value) => field(out, "answer", &value.to_string())?,
            Answer::Unreadable(why) => field(out, "answer", &why)?,
        }
        match state::advice(&entry, max_attempts) {
            Some(advice) => field(out, "next", advice),
            None => Ok(()),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn answer(entry: &Entry, show: bool) -> Answer {
    let Some(stored) = entry.stored_answer() else {
        return Answer::None;
    };
    if !show {
        return Answer::Hidden;
    }
    match stored.decode::<Value>() {
        Ok(value) => Answer::Value(value),
        Err(_) if stored.is_encrypted() => Answer::Unreadable(
            "encrypted; --encryption-key-file ID:FILE reads it, with the key that wrote it".to_owned(),
        ),
        Err(_) => Answer::Unreadable(
            "no value that can be shown: a response of the HTTP layer, or of a feature that this build has not"
                .to_owned(),
        ),
    }
}
