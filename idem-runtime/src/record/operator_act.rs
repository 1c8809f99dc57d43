//! What operators did to a record: an entry of the [journal](super::journal) each, with a small letter.
//!
//! Nothing decides by them.
//!
//! ```text
//!  4     kind: o
//!  5–20  digest of the name of the step that it settles, or zeros
//! 21–26  when, by the clock of the operator's machine
//! 27–30  the verb
//! 47     bytes of the operator's name
//! 48–    the name; then the step, a NUL, and the reason; all in UTF-8
//! ```

use std::time::SystemTime;

use super::attempt::Attempt;
use super::codes::coded_words;
use super::journal::{EntryKind, Journal, JournalEntry, StepDigest, first_bytes};
use super::label::KeyLabel;
use crate::identity::fingerprint::Fingerprint;

/// The longest reason, and the longest name of a step, in bytes; a longer one is cut.
const MAX_TEXT: usize = 256;

/// The act of an operator on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperatorVerb {
    /// Ended a claim: [`Entry::release`](crate::admin::Entry::release).
    Release,
    /// Gave a value: [`Entry::resolve`](crate::admin::Entry::resolve).
    Resolve,
    /// Gave a business error: [`Entry::resolve_error`](crate::admin::Entry::resolve_error).
    ResolveError,
    /// Let the body run again: [`Entry::reset`](crate::admin::Entry::reset), or, for each step that
    /// it settles, [`Entry::reset_steps`](crate::admin::Entry::reset_steps).
    Reset,
    /// The same, without the results of steps: [`Entry::reset_with_steps`](crate::admin::Entry::reset_with_steps).
    ResetWithSteps,
    /// Removed the record: [`Entry::expire`](crate::admin::Entry::expire).
    Purge,
    /// A verb that this version does not know.
    Other,
}

coded_words! {
    OperatorVerb: "What it does to the calls after it.", "a later version of idem recorded it";
    1 Release "release":
        "the claim was ended: the next call runs the body, if an attempt is left; the outcome of a reconciliation is unknown \
         again";
    2 Resolve "resolve":
        "every later call gets the value that the operator gave";
    3 ResolveError "resolve-error":
        "every later call gets the error that the operator gave";
    4 Reset "reset":
        "the next call runs the body, with the results of its finished steps; any other effect that had happened happens \
         again";
    5 ResetWithSteps "reset-with-steps":
        "the next call runs the body, and all of its steps: if the effect had happened, it happens again";
    6 Purge "purge":
        "the record was removed: the next call runs the body, and if the effect had happened, it happens again";
}

/// An operator's change, as the record remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorAct {
    /// The act.
    pub verb: OperatorVerb,
    /// When, by the clock of the operator's machine.
    pub at: SystemTime,
    /// The name of the operator; empty if none was given.
    pub operator: String,
    /// Why; empty if no reason was given.
    pub reason: String,
    /// The step that the act settles: "charge happened", "mail did not happen"; empty for an act on the whole record.
    pub step: String,
}

impl OperatorAct {
    /// Its entry. `of` is the digest of the step that it settles, or zeros.
    pub(crate) fn entry(&self, of: StepDigest) -> JournalEntry {
        let operator = KeyLabel::new(&self.operator);
        let [step, reason] = [&self.step, &self.reason].map(|text| first_bytes(text, MAX_TEXT));
        JournalEntry {
            kind: EntryKind::Act,
            step: of,
            at: self.at,
            schema: self.verb.code(),
            input: Fingerprint::NONE,
            label: operator.map_or_else(String::new, |name| name.as_str().to_owned()),
            body: format!("{step}\0{reason}").into(),
        }
    }

    fn of(entry: &JournalEntry) -> Self {
        let body = String::from_utf8_lossy(&entry.body);
        let (step, reason) = body.split_once('\0').unwrap_or_default();
        Self {
            verb: OperatorVerb::of(entry.schema),
            at: entry.at,
            operator: entry.label.clone(),
            reason: reason.to_owned(),
            step: step.to_owned(),
        }
    }
}

/// An event in the life of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryEvent {
    /// An attempt of the call has ended.
    Attempt(Attempt),
    /// An operator has changed the record.
    Act(OperatorAct),
}

impl HistoryEvent {
    /// Those of a journal, from first to last.
    pub(crate) fn all_of(journal: &Journal) -> Vec<Self> {
        let entries = journal.entries().map_while(Result::ok);
        let events = entries.filter_map(|entry| match entry.kind {
            EntryKind::Act => Some(Self::Act(OperatorAct::of(&entry))),
            _ => Attempt::of(entry).map(Self::Attempt),
        });
        events.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::record::JournalKind;

    fn act(verb: OperatorVerb) -> OperatorAct {
        OperatorAct {
            verb,
            at: UNIX_EPOCH + Duration::from_secs(1_790_000_030),
            operator: "Zoë".to_owned(),
            reason: "the bank has no such payment".to_owned(),
            step: "charge".to_owned(),
        }
    }

    fn written(acts: &[OperatorAct]) -> Journal {
        let acts = acts.iter();
        acts.fold(Journal::default(), |journal, act| {
            journal.with(&act.entry([0; 16]))
        })
    }

    #[test]
    fn acts_come_back_in_order_and_are_no_steps() {
        let all: Vec<_> = (OperatorVerb::CODES.iter())
            .map(|(_, verb)| act(*verb))
            .collect();
        let journal = written(&all);
        let back: Vec<_> = all.into_iter().map(HistoryEvent::Act).collect();
        assert_eq!(HistoryEvent::all_of(&journal), back);
        assert_eq!(journal.kind(), JournalKind::Attempts);
        // Frozen: a history of an older release is read for ever.
        let codes = OperatorVerb::CODES.iter();
        let codes: Vec<_> = codes
            .map(|(code, verb)| format!("{code} {}", verb.as_str()))
            .collect();
        let frozen = "1 release, 2 resolve, 3 resolve-error, 4 reset, 5 reset-with-steps, 6 purge";
        assert_eq!(codes.join(", "), frozen);
        assert_eq!(
            (journal.attempts(), journal.compacted()),
            (journal.clone(), journal)
        );
    }

    /// An operator who resets a record in a loop.
    #[test]
    fn the_first_and_the_last_acts_are_kept() {
        let numbered = |number: u64| OperatorAct {
            at: UNIX_EPOCH + Duration::from_secs(number),
            ..act(OperatorVerb::Reset)
        };
        let all: Vec<_> = (1..=40).map(numbered).collect();
        let kept = std::iter::once(&all[0]).chain(&all[25..]);
        let kept: Vec<_> = kept.cloned().map(HistoryEvent::Act).collect();
        assert_eq!(HistoryEvent::all_of(&written(&all)), kept);
    }

    #[test]
    fn a_name_and_a_reason_are_cut_between_characters() {
        let long = OperatorAct {
            operator: "ä".repeat(40),
            reason: "ä".repeat(200),
            ..act(OperatorVerb::Purge)
        };
        let cut = OperatorAct {
            operator: "ä".repeat(32),
            reason: "ä".repeat(128),
            ..long.clone()
        };
        assert_eq!(
            HistoryEvent::all_of(&written(&[long])),
            [HistoryEvent::Act(cut)]
        );
    }
}
