//! `idem why`: the attempts of a call in their order, and what let each follow the one before.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::SystemTime;

use idem_runtime::admin::{Attempt, Entry, EntryState, HistoryEvent, OperatorAct, Process};
use serde_json::{Value, json};

use crate::Session;
use crate::arguments::Why;
use crate::failure::Failure;
use crate::output;
use crate::record::{self, since_1970};
use crate::state;
use crate::text::{duration, exact, printed};

/// The most attempts and acts that a record remembers.
const REMEMBERED: usize = 16;

pub(crate) async fn run(session: &Session, verb: &Why) -> Result<(), Failure> {
    let entry = record::find(&session.engine, &verb.which).await?;
    let history = entry.history();
    let names = Names::new(&entry.recorded_attempts(), &verb.instance);
    if session.json {
        let mut document = record::document(&entry);
        let events = history.iter().map(|event| match event {
            HistoryEvent::Attempt(attempt) => json!({ "attempt": {
                "number": attempt.number,
                "end": attempt.end.as_str(),
                "explanation": attempt.end.explanation(),
                "started_ms": since_1970(attempt.started()),
                "ended_ms": since_1970(attempt.ended),
                "fence": attempt.fence.get(),
                "process": names.document(attempt.process()),
            } }),
            HistoryEvent::Act(act) => json!({ "act": {
                "verb": act.verb.as_str(),
                "explanation": act.verb.explanation(),
                "at_ms": since_1970(act.at),
                "operator": act.operator,
                "reason": act.reason,
                "step": act.step,
            } }),
            _ => Value::Null,
        });
        document["history"] = events.collect();
        document["process"] = json!(names.document(entry.process()));
        output::document(&document)
    } else {
        output::text(|out| describe(out, &entry, &history, &names, session.max_attempts))
    }
}

/// The names of instances by their tags in owners.
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

    fn document(&self, process: Option<Process>) -> Option<Value> {
        let process = process?;
        Some(json!({
            "instance": self.of(process),
            "instance_tag": format!("{:04x}", process.instance),
            "pid": process.pid,
        }))
    }
}

fn describe(
    out: &mut dyn Write,
    entry: &Entry,
    history: &[HistoryEvent],
    names: &Names,
    max_attempts: u16,
) -> io::Result<()> {
    write!(out, "{}  {}", printed(entry.operation()), entry.key())?;
    match entry.label() {
        Some(label) => writeln!(out, "  {label}")?,
        None => writeln!(out)?,
    }
    let (meaning, _) = state::meaning(entry, max_attempts);
    writeln!(out, "{}: {meaning}\n", state::name(entry))?;
    let mut shown = 0;
    for (place, event) in history.iter().enumerate() {
        if place == 1 && history.len() == REMEMBERED {
            writeln!(
                out,
                "    … a record remembers the first of its attempts and acts of operators, and the last {}",
                REMEMBERED - 1
            )?;
        }
        match event {
            HistoryEvent::Attempt(attempt) => {
                shown += 1;
                let (started, by) = (attempt.started(), names.text(attempt.process()));
                writeln!(out, "{shown:>2}. started {} by {by}", exact(started))?;
                // Two clocks: the store's, and that of the process.
                let lasted = attempt.ended.duration_since(started);
                let lasted = duration(lasted.unwrap_or_default());
                let (end, explanation) = (attempt.end.as_str(), attempt.end.explanation());
                writeln!(out, "    {end} after {lasted}: {explanation}")?;
            }
            HistoryEvent::Act(act) => describe_act(out, act)?,
            _ => {}
        }
    }
    let acts = history.len() - shown;
    let present = match entry.state() {
        EntryState::Running { .. } => Some("runs"),
        // Its lease lapsed, and nothing has claimed the key since.
        EntryState::Abandoned => {
            Some("did not end: its process died, was paused or was cut off from the store")
        }
        EntryState::Answered(_) | EntryState::NotStored if history.is_empty() => Some("answered"),
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
    if entry.is_by_hand() && acts == 0 {
        writeln!(
            out,
            "    an operator has written the record {} ago",
            duration(entry.age())
        )?;
    }
    writeln!(out)?;
    let counted = usize::from(entry.attempts());
    if counted > shown && history.len() < REMEMBERED && !entry.is_by_hand() {
        return writeln!(
            out,
            "The record counts {counted} attempts and remembers {shown}. An attempt that was overtaken succeeded late, and \
             its answer took the place of what the others had left (promises 1 and 6); or `record_attempts` is off in some process."
        );
    }
    let conclusion = match (history.is_empty(), entry.state()) {
        (true, EntryState::Released) => {
            "No attempt is remembered: the store keeps no journals, `record_attempts` is off, or the body did not start."
        }
        (true, EntryState::Answered(_) | EntryState::NotStored) if entry.attempts() <= 1 => {
            "The body was started once in the life of this record. If its effect happened twice, the other start was \
             under another key, prefix or store, after the `ttl` of an earlier record, before an operator's `purge`, \
             or before a released record was forgotten, a lease after its release."
        }
        (true, _) => "The body was started once in the life of this record.",
        (false, _) => {
            "Each start after the first is explained by the end of the attempt, or the act, before it. The promises are \
             those of the guide's page `guarantee`."
        }
    };
    writeln!(out, "{conclusion}")
}

fn describe_act(out: &mut dyn Write, act: &OperatorAct) -> io::Result<()> {
    let operator = match &*act.operator {
        "" => "an operator".to_owned(),
        name => format!("the operator {}", printed(name)),
    };
    let (verb, explanation) = (act.verb.as_str(), act.verb.explanation());
    let at = exact(act.at);
    writeln!(out, "    {verb} by {operator} {at}: {explanation}")?;
    if !act.step.is_empty() {
        writeln!(out, "    steps: {}", printed(&act.step))?;
    }
    match &*act.reason {
        "" => Ok(()),
        reason => writeln!(out, "    reason: {}", printed(reason)),
    }
}
