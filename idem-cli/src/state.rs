//! The states of records, as the command names them.

use clap::ValueEnum;
use idem_runtime::admin::{Entry, EntryFilter, EntryState, RecordedStep, StepState};
use idem_runtime::store::OutcomeKind;

/// A state to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateFilter {
    /// A claim is held: a body or a reconcile hook runs.
    #[value(alias = "pending")]
    Running,
    /// A body began and did not end: its process crashed, or lost its lease.
    Abandoned,
    /// Abandoned or released, and no attempt is left: `--max-attempts`.
    Exhausted,
    /// The body released the key: the next call runs it.
    Released,
    /// A value or a business error is stored.
    #[value(alias = "done")]
    Answered,
    /// A business error is stored.
    Error,
    /// The effect happened, and its answer could not be stored.
    NotStored,
    /// The effect may or may not have happened.
    Unknown,
}

impl StateFilter {
    pub(crate) const fn entries(self) -> EntryFilter {
        match self {
            Self::Running => EntryFilter::Running,
            Self::Abandoned => EntryFilter::Abandoned,
            Self::Exhausted => EntryFilter::Exhausted,
            Self::Released => EntryFilter::Released,
            Self::Answered | Self::Error => EntryFilter::Answered,
            Self::NotStored => EntryFilter::NotStored,
            Self::Unknown => EntryFilter::Unknown,
        }
    }

    /// Whether it is the state of an entry that [`entries`](Self::entries) selects.
    pub(crate) fn is_of(self, entry: &Entry) -> bool {
        self != Self::Error || entry.state() == EntryState::Answered(OutcomeKind::Error)
    }
}

/// Whether it is not known whether the step happened.
pub(crate) fn is_open(step: &RecordedStep) -> bool {
    matches!(
        step.state,
        StepState::Begun | StepState::Finished(OutcomeKind::Unknown)
    )
}

/// The state of a record in one word.
pub(crate) fn name(entry: &Entry) -> &'static str {
    match entry.state() {
        EntryState::Running { .. } => "running",
        EntryState::Abandoned => "abandoned",
        EntryState::Released => "released",
        EntryState::Answered(OutcomeKind::Error) => "error",
        EntryState::Answered(_) => "answered",
        EntryState::NotStored => "not-stored",
        EntryState::Unknown => "unknown",
        _ => "other",
    }
}

/// Whether no attempt is left for an unfinished call.
pub(crate) fn is_exhausted(entry: &Entry, max_attempts: u16) -> bool {
    let waits = matches!(entry.state(), EntryState::Abandoned | EntryState::Released);
    waits && entry.attempts() >= max_attempts
}

/// State of a call, the next answer, and an operator's options.
pub(crate) fn meaning(entry: &Entry, max_attempts: u16) -> (&'static str, Option<&'static str>) {
    let has_attempts = entry.attempts() < max_attempts;
    let has_open_step = entry.steps().iter().any(is_open);
    let or_of_step = |advice| Some(if has_open_step { FIND_STEP } else { advice });
    match entry.state() {
        EntryState::Running { .. } => (
            "a claim is held; other calls wait, or are refused",
            Some("`idem release` if its process is gone"),
        ),
        EntryState::Abandoned | EntryState::Released if has_attempts && has_open_step => (
            "a step began and its end is not known; the next call runs the body up to it, and is refused there unless \
             a reconcile hook decides",
            Some(FIND_STEP),
        ),
        EntryState::Abandoned if has_attempts => (
            "a body began and did not end; the next call runs it again",
            None,
        ),
        EntryState::Abandoned => (
            "a body began and did not end, and no attempt is left: calls are refused as exhausted",
            or_of_step(FIND),
        ),
        EntryState::Released if entry.is_by_hand() => (
            "an operator has taken the record back; the next call runs the body",
            None,
        ),
        EntryState::Released if has_attempts && !entry.steps().is_empty() => (
            "the body ended without an answer, or its claim was released; the next call continues after its finished \
             steps",
            None,
        ),
        EntryState::Released if has_attempts => (
            "the body ended without an effect, or its claim was released; the next call runs it",
            None,
        ),
        EntryState::Released => (
            "no attempt is left: calls are refused as exhausted",
            or_of_step("find the cause of the failures; `idem reset` lets it run again"),
        ),
        EntryState::Answered(OutcomeKind::Error) => {
            ("every call gets the stored business error", None)
        }
        EntryState::Answered(_) => ("every call gets the stored value", None),
        EntryState::NotStored => (
            "the effect happened, and its answer could not be stored: calls are refused",
            Some(
                "reply to the caller by hand; `idem reset` runs the body again, and its effect happens again",
            ),
        ),
        EntryState::Unknown if entry.is_streaming() => (
            "the body streams its answer, or was cut off while it did: calls are refused until the end of the stream",
            Some(FIND_STREAMED),
        ),
        EntryState::Unknown => (
            "the effect may or may not have happened: calls are refused, or run the reconcile hook",
            or_of_step(FIND),
        ),
        _ => ("", None),
    }
}

const FIND: &str = "find out at the other party whether the effect happened; then `idem resolve --value …` if it did, \
    `idem resolve --error …` if it failed for good, `idem reset` if it did not and cannot happen any more";
const FIND_STREAMED: &str = "wait for `max_run` of the operation from `written` on, when the stream has ended or was cut off; \
    then, if it is still unknown, find out at the other party whether the effect happened; then `idem resolve` if it did, \
    `idem reset` if it did not and cannot happen any more";
const FIND_STEP: &str = "find out at the other party whether the step of unknown outcome happened; then `idem reset --done \
    STEP=JSON` with its value (`null` for none) if it did, `idem reset --not-done STEP` if it did not and cannot happen any \
    more, or give the whole call its answer: `idem resolve --value …`";
