//! `idem release` and `reset`: one record is changed, if it is still the one that was shown.

use std::collections::BTreeSet;
use std::process::ExitCode;

use idem_runtime::admin::{Entry, EntryState};
use idem_runtime::{ErrorKind, Reconciled};
use serde_json::json;

use crate::Session;
use crate::arguments::{Release, Reset};
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::output;
use crate::record::{self, describe};
use crate::state;
use crate::text::duration;

/// Shows the record and what the verb does to it, asks, changes it, and reports the result in the words of `change`.
pub(crate) async fn change(
    session: &Session,
    (verb, yes): (&'static str, bool),
    effect: &str,
    entry: Entry,
    change: impl AsyncFnOnce(Entry) -> Result<String, Failure>,
) -> Result<ExitCode, Failure> {
    if !session.json {
        output::text(|out| {
            describe(out, &entry, session.max_attempts)?;
            record::field(out, verb, effect)
        })?;
    }
    confirm(yes, &format!("{verb} this record?"))?;
    let (operation, digest) = (entry.operation().to_owned(), entry.key().to_string());
    let before = record::document(&entry);
    let done = change(entry).await?;
    let after = session.engine.entry(&operation, &digest).await?;
    if session.json {
        output::document(&json!({
            "changed": true,
            "verb": verb,
            "before": before,
            "after": after.as_ref().map(record::document),
        }))?;
    } else {
        let now = after.as_ref().map_or("gone", state::name);
        let meaning = after
            .as_ref()
            .map_or("", |entry| state::meaning(entry, session.max_attempts).0);
        output::text(|out| writeln!(out, "\n{done}; state now {now}: {meaning}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses to change a claim that is held.
pub(crate) fn refuse_running(entry: &Entry) -> Result<(), Failure> {
    match entry.state() {
        EntryState::Running { lease_left } => Err(Failure::refused(format!(
            "nothing was changed: a claim is held, and lapses in {} unless its process renews it; wait, or `idem \
             release` it if the process is gone",
            duration(lease_left)
        ))),
        _ => Ok(()),
    }
}

/// The error of a change. That of a record which has changed states that nothing was changed.
pub(crate) fn refused(error: idem_runtime::Error) -> Failure {
    match error.kind() {
        ErrorKind::Running { .. } => Failure::refused(
            "nothing was changed: a call has claimed the key since; look at the record again with `idem show`",
        ),
        _ => error.into(),
    }
}

pub(crate) async fn release(session: &Session, verb: &Release) -> Result<ExitCode, Failure> {
    let entry = verb
        .consent
        .sign(record::find(&session.engine, &verb.which).await?);
    let age = entry.age();
    let effect = match entry.state() {
        EntryState::Running { lease_left } => {
            let lease = age + lease_left;
            if age < lease / 3 + lease / 30 && !verb.force {
                return Err(Failure::refused(format!(
                    "nothing was changed: the claim was renewed {} ago, and claims are renewed every third of their \
                     lease ({}), so that its process seems to be alive; look again in {}, or --force",
                    duration(age),
                    duration(lease),
                    duration(lease / 3),
                )));
            }
            "the claim ends now, and the next call runs the body if an attempt is left. If its process is alive, two \
             bodies run"
        }
        EntryState::Abandoned => {
            "the record becomes released; its attempt counts as before, and the next call runs the body if one is left"
        }
        _ => {
            return Err(Failure::refused(format!(
                "nothing was changed: the record is {}, and no claim is held or abandoned",
                state::name(&entry)
            )));
        }
    };
    let released = async |entry: Entry| {
        entry.release().await.map_err(refused)?;
        Ok("released".to_owned())
    };
    let asked = ("release", verb.consent.yes);
    change(session, asked, effect, entry, released).await
}

pub(crate) async fn reset(session: &Session, verb: &Reset) -> Result<ExitCode, Failure> {
    let entry = verb
        .consent
        .sign(record::find(&session.engine, &verb.which).await?);
    refuse_running(&entry)?;
    let steps = entry.steps();
    let done = verb.done.iter().map(|(name, _)| name.as_str());
    let not_done = verb.not_done.iter().map(String::as_str);
    let given: Vec<_> = not_done.chain(done).collect();
    let is_there = |name| steps.iter().any(|step| step.name == name);
    if let Some(unknown) = given.iter().find(|name| !is_there(**name)) {
        let names: BTreeSet<_> = steps
            .iter()
            .map(|step| format!("`{}`", step.name))
            .collect();
        let names = Vec::from_iter(names).join(", ");
        return Err(Failure::refused(format!(
            "nothing was changed: the record has no step `{unknown}`; it has {}. A step in a transaction has a record of \
             its own: `{}/{unknown}`",
            if names.is_empty() { "none" } else { &names },
            entry.operation(),
        )));
    }
    let mut undecided = steps
        .iter()
        .filter(|step| record::is_open(step) && !given.contains(&&*step.name));
    if let Some(step) = undecided.next()
        && !(verb.drop_steps || verb.reconciled)
    {
        return Err(Failure::refused(format!(
            "nothing was changed: it is not known whether the step `{}` happened, and the next call would be refused \
             for it. If it did not, `--not-done {0}`; if it did, `--done {0}=JSON` with its value (`null` for none); if \
             the step has a `reconcile` hook, `--reconciled`; `--drop-steps` forgets all steps, and each effect happens again",
            step.name
        )));
    }
    let steps = match (entry.has_steps(), verb.drop_steps) {
        (false, _) => "",
        (true, true) => ", and all of its steps",
        (true, false) => ", which gets the results of its finished steps",
    };
    let done: Vec<_> = verb.done.iter().map(|(name, _)| &**name).collect();
    let done = match &done[..] {
        [] => String::new(),
        names => format!(
            ", and the given values of the steps `{}`, which are not checked",
            names.join("`, `")
        ),
    };
    let not_done = match &verb.not_done[..] {
        [] => String::new(),
        names => format!(", and runs the open steps `{}`", names.join("`, `")),
    };
    let dropped = match entry.state() {
        EntryState::Answered(_) => "the stored answer is dropped, and ",
        _ => "",
    };
    let again = match (entry.has_steps(), verb.drop_steps) {
        (true, false) => {
            "Any effect that is not of a finished step, and has happened, happens again"
        }
        _ => "Any effect that has happened happens again",
    };
    let effect = format!(
        "{dropped}the next call runs the body{steps}{done}{not_done}, as a first attempt. {again}"
    );
    let not_done = verb
        .not_done
        .iter()
        .map(|name| (&**name, Reconciled::NotLanded));
    let done = verb
        .done
        .iter()
        .map(|(name, json)| (&**name, Reconciled::Landed(&**json)));
    let steps: Vec<_> = not_done.chain(done).collect();
    let reset = async |entry: Entry| {
        let reset = match &steps[..] {
            _ if verb.drop_steps => entry.reset_with_steps().await,
            [] => entry.reset().await,
            steps => entry.reset_steps(steps).await,
        };
        reset.map_err(refused)?;
        Ok("reset".to_owned())
    };
    let asked = ("reset", verb.consent.yes);
    change(session, asked, &effect, entry, reset).await
}
