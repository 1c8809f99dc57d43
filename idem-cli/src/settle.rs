//! `idem release` and `reset`: one record is changed, if it has not changed since it was shown.

use idem_runtime::admin::{Entry, EntryState};
use idem_runtime::{Error, ErrorKind, Reconciled};
use serde_json::json;

use crate::Session;
use crate::arguments::{Release, Reset};
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::output;
use crate::record::{self, describe};
use crate::state;
use crate::text::{duration, printed};

/// Shows the record and the effect, asks, changes it, and reports.
pub(crate) async fn change(
    session: &Session,
    ([verb, done], yes): ([&'static str; 2], bool),
    effect: &str,
    entry: Entry,
    change: impl AsyncFnOnce(Entry) -> Result<(), Error>,
) -> Result<Option<Entry>, Failure> {
    if !(session.json && yes) {
        output::beside(session.json, |out| {
            describe(out, &entry, session.max_attempts)?;
            record::field(out, verb, effect)
        })?;
    }
    confirm(yes, &format!("{verb} this record?"))?;
    let (operation, digest) = (entry.operation().to_owned(), entry.key().to_string());
    let before = record::document(&entry);
    change(entry).await.map_err(|error| match error.kind() {
        ErrorKind::Running { .. } => Failure::refused(
            "nothing was changed: a call has claimed the key since; look at the record again with `idem show`",
        ),
        // Where the store refuses, nothing was changed.
        ErrorKind::StoreUnavailable if error.is_retryable() => Failure::store(format!(
            "{}; it is not known whether the record was changed: look at it again with `idem show`",
            Failure::from(error)
        )),
        _ => error.into(),
    })?;
    let after = session.engine.entry(&operation, &digest).await;
    let (after, unreadable) = match after {
        Ok(after) => (after, None),
        Err(error) => (None, Some(Failure::from(error).to_string())),
    };
    if session.json {
        output::document(&json!({
            "changed": true,
            "verb": verb,
            "before": before,
            "after": after.as_ref().map(record::document),
            "after_unreadable": unreadable,
        }))?;
    }
    if let Some(why) = unreadable {
        let note = format!("idem: {done}, but the record cannot be read again: {why}");
        output::beside(true, |out| writeln!(out, "{}", printed(&note)))?;
    } else if !session.json {
        let now = after.as_ref().map_or("gone", state::name);
        let meaning = |entry: &Entry| state::meaning(entry, session.max_attempts).0;
        let meaning = after.as_ref().map_or("", meaning);
        output::text(|out| writeln!(out, "\n{done}; state now {now}: {meaning}"))?;
    }
    Ok(after)
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

pub(crate) async fn release(session: &Session, verb: &Release) -> Result<(), Failure> {
    let entry = record::find(&session.engine, &verb.which).await?;
    let entry = verb.consent.sign(entry);
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
    let verbs = ["release", "released"];
    let changed = change(
        session,
        (verbs, verb.consent.yes),
        effect,
        entry,
        Entry::release,
    );
    changed.await.map(drop)
}

pub(crate) async fn reset(session: &Session, verb: &Reset) -> Result<(), Failure> {
    let entry = record::find(&session.engine, &verb.which).await?;
    let entry = verb.consent.sign(entry);
    refuse_running(&entry)?;
    let done = (verb.done.iter()).map(|(name, json)| (&**name, Reconciled::Landed(&**json)));
    let not_done = (verb.not_done.iter()).map(|name| (&**name, Reconciled::NotLanded));
    let given: Vec<_> = done.chain(not_done).collect();
    check_steps(&entry, verb, &given)?;
    let mut effect = match entry.state() {
        EntryState::Answered(_) => "the stored answer is dropped, and ".to_owned(),
        _ => String::new(),
    };
    effect += "the next call runs the body";
    let keeps_steps = entry.has_steps() && !verb.drop_steps;
    if keeps_steps {
        effect += ", which gets the results of its finished steps";
    } else if entry.has_steps() {
        effect += ", and all of its steps";
    }
    effect.extend(given.iter().map(|(name, verdict)| match verdict {
        Reconciled::Landed(_) => {
            format!(", and the given value of the step `{name}`, which is not checked")
        }
        _ => format!(", and runs the open step `{name}`"),
    }));
    effect += ", as a first attempt. ";
    effect += if keeps_steps {
        "Any effect that is not of a finished step, and has happened, happens again"
    } else {
        "Any effect that has happened happens again"
    };
    let reset = async |entry: Entry| match &given[..] {
        _ if verb.drop_steps => entry.reset_with_steps().await,
        [] => entry.reset().await,
        steps => entry.reset_steps(steps).await,
    };
    let verbs = ["reset", "reset"];
    let changed = change(session, (verbs, verb.consent.yes), &effect, entry, reset);
    changed.await.map(drop)
}

/// Refuses an absent step, and a step whose outcome stays unknown.
fn check_steps(
    entry: &Entry,
    verb: &Reset,
    given: &[(&str, Reconciled<&str>)],
) -> Result<(), Failure> {
    let steps = entry.steps();
    let unknown = given
        .iter()
        .find(|(name, _)| steps.iter().all(|step| step.name != *name));
    if let Some((unknown, _)) = unknown {
        let mut names: Vec<_> = steps
            .iter()
            .map(|step| format!("`{}`", step.name))
            .collect();
        names.sort_unstable();
        names.dedup();
        return Err(Failure::refused(format!(
            "nothing was changed: the record has no step `{unknown}`; it has {}. A step in a transaction has a record of \
             its own: `{}/{unknown}`",
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            },
            entry.operation(),
        )));
    }
    let is_given = |name: &str| given.iter().any(|(given, _)| *given == name);
    let mut undecided = steps
        .iter()
        .filter(|step| state::is_open(step) && !is_given(&step.name));
    match undecided.next() {
        Some(step) if !(verb.drop_steps || verb.reconciled) => Err(Failure::refused(format!(
            "nothing was changed: it is not known whether the step `{}` happened, and the next call would be refused \
             for it. If it did not, `--not-done {0}`; if it did, `--done {0}=JSON` with its value (`null` for none); if \
             the step has a `reconcile` hook, `--reconciled`; `--drop-steps` forgets all steps, and each effect happens again",
            step.name
        ))),
        _ => Ok(()),
    }
}
