//! `idem why`: the attempts of a call in their order, and what let each follow the one before.

use std::collections::HashMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use idem_runtime::Engine;
use idem_runtime::admin::{Attempt, AttemptEnd, Entry, EntryState, Process};
use serde_json::{Value, json};

use crate::arguments::Why;
use crate::failure::Failure;
use crate::output::Output;
use crate::record;
use crate::state;
use crate::text::{duration, exact, millis, printed};

/// The most attempts that a record remembers.
const REMEMBERED: usize = 16;

pub(crate) async fn run(
    engine: &Engine,
    verb: &Why,
    max_attempts: u16,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let entry = record::find(engine, &verb.which).await?;
    let attempts = entry.recorded_attempts();
    let names = Names::new(&attempts, &verb.instance);
    if output.json {
        let mut document = record::document(&entry);
        let recorded = (1..).zip(&attempts).map(|(place, attempt)| {
            let mut document = names.document(attempt);
            document["reset_since"] = is_reset(&entry, &attempts, place).into();
            document
        });
        document["recorded_attempts"] = recorded.collect();
        document["process"] = (entry.process()).map_or(Value::Null, |by| names.process(by));
        Output::document(&document)?;
    } else {
        Output::text(|out| describe(out, &entry, &attempts, &names, max_attempts))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The names of instances, by the tag that an owner has of them.
struct Names(HashMap<u16, String>);

impl Names {
    fn new(attempts: &[Attempt], given: &[String]) -> Self {
        let recorded = attempts.iter().filter_map(|attempt| {
            let process = attempt.process()?;
            (!attempt.instance.is_empty()).then(|| (process.instance, attempt.instance.clone()))
        });
        let given = given
            .iter()
            .map(|name| (Process::this(name).instance, name.clone()));
        Self(given.chain(recorded).collect())
    }

    fn of(&self, process: Process) -> Option<&str> {
        self.0.get(&process.instance).map(String::as_str)
    }

    fn text(&self, process: Option<Process>) -> String {
        match process {
            Some(process) => match self.of(process) {
                Some(name) => format!("{}, pid {}", printed(name), process.pid),
                None => format!("instance #{:04x}, pid {}", process.instance, process.pid),
            },
            None => "a process that does not record attempts".to_owned(),
        }
    }

    fn process(&self, process: Process) -> Value {
        json!({
            "instance": self.of(process),
            "instance_tag": format!("{:04x}", process.instance),
            "pid": process.pid,
        })
    }

    fn document(&self, attempt: &Attempt) -> Value {
        let process = attempt.process();
        json!({
            "number": attempt.number,
            "end": attempt.end.as_str(),
            "explanation": attempt.end.explanation(),
            "started_ms": since_1970(attempt.started()),
            "ended_ms": since_1970(attempt.ended),
            "fence": attempt.fence.get(),
            "process": process.map_or(Value::Null, |process| self.process(process)),
        })
    }
}

/// Whether a body started after this attempt, the first of which is 1, although it had been answered: by hand alone.
fn is_reset(entry: &Entry, attempts: &[Attempt], place: usize) -> bool {
    let is_answer = |attempt: &Attempt| {
        matches!(
            attempt.end,
            AttemptEnd::Value | AttemptEnd::BusinessError | AttemptEnd::NotStored
        )
    };
    let is_followed = place < attempts.len()
        || matches!(
            entry.state(),
            EntryState::Running { .. } | EntryState::Abandoned
        );
    is_followed && attempts.get(place - 1).is_some_and(is_answer)
}

fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, millis)
}

fn describe(
    out: &mut dyn Write,
    entry: &Entry,
    attempts: &[Attempt],
    names: &Names,
    max_attempts: u16,
) -> io::Result<()> {
    write!(out, "{}  {}", printed(entry.operation()), entry.key())?;
    match entry.label() {
        Some(label) => writeln!(out, "  {label}")?,
        None => writeln!(out)?,
    }
    writeln!(
        out,
        "{}: {}",
        state::name(entry),
        state::meaning(entry, max_attempts)
    )?;
    writeln!(out)?;
    for (place, attempt) in (1..).zip(attempts) {
        if place == 2 && attempts.len() == REMEMBERED {
            writeln!(
                out,
                "    … a record remembers its first attempt and the last {}",
                REMEMBERED - 1
            )?;
        }
        let (started, by) = (exact(attempt.started()), names.text(attempt.process()));
        writeln!(out, "{place:>2}. started {started} by {by}")?;
        // Two clocks: the store's, and that of the process.
        let lasted = attempt.ended.duration_since(attempt.started());
        let after = format!("after {}", duration(lasted.unwrap_or_default()));
        writeln!(
            out,
            "    {} {after}: {}",
            attempt.end,
            attempt.end.explanation()
        )?;
        if is_reset(entry, attempts, place) {
            writeln!(
                out,
                "    then an operator reset the record (`idem reset`): the next call ran the body"
            )?;
        }
    }
    let mut shown = attempts.len();
    let present = match entry.state() {
        EntryState::Running { .. } => Some("runs"),
        // Its lease lapsed, and nothing has claimed the key since.
        EntryState::Abandoned => {
            Some("did not end: its process died, was paused or was cut off from the store")
        }
        EntryState::Answered(_) | EntryState::NotStored if attempts.is_empty() => Some("answered"),
        _ => None,
    };
    if let (Some(present), false) = (present, entry.is_by_hand()) {
        let started =
            SystemTime::UNIX_EPOCH + std::time::Duration::from_micros(entry.fence().get());
        let by = names.text(entry.process());
        shown += 1;
        writeln!(out, "{shown:>2}. started {} by {by}", exact(started))?;
        writeln!(out, "    {present}")?;
    }
    if entry.is_by_hand() {
        writeln!(
            out,
            "    an operator has written the record {} ago",
            duration(entry.age())
        )?;
    }
    writeln!(out)?;
    let counted = usize::from(entry.attempts());
    if counted > shown && shown < REMEMBERED && !entry.is_by_hand() {
        return writeln!(
            out,
            "The record counts {counted} attempts and remembers {shown}. An attempt that was overtaken succeeded late, and \
             its answer took the place of what the others had left (promises 1 and 6); or `record_attempts` is off in some process."
        );
    }
    let conclusion = match (attempts.len(), entry.state()) {
        (0, EntryState::Released) => {
            "No attempt is remembered: the store keeps no journals, `record_attempts` is off, or the body did not start."
        }
        (0, EntryState::Answered(_) | EntryState::NotStored) if entry.attempts() <= 1 => {
            "The body was started once in the life of this record. If its effect happened twice, the other start was \
             under another key, prefix or store, after the `ttl` of an earlier record, before an operator's `purge`, \
             or before a released record was forgotten, a lease after its release."
        }
        (0, _) => "The body was started once in the life of this record.",
        _ => {
            "Each start after the first is explained by the end of the attempt before it. The promises are those of the \
             guide's page `guarantee`."
        }
    };
    writeln!(out, "{conclusion}")
}
