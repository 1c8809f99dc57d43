//! The steps of an entry, and its keys for other parties.

use std::time::SystemTime;

use bytes::Bytes;

use super::Entry;
use crate::error::{Error, ErrorKind};
use crate::identity::derived_key;
use crate::identity::digest_key::StepPart;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::outcome::codec::Encoded;
use crate::outcome::reconciled::Reconciled;
use crate::record::journal::{EntryKind, JournalEntry, StepDigest};
use crate::record::{HEADER, Journal, OperatorVerb, OutcomeKind};

/// A step of a call, as its record shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedStep {
    /// The first part of its name.
    pub name: String,
    /// Its state.
    pub state: StepState,
    /// The time of that state, by the recording process.
    pub at: SystemTime,
}

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepState {
    /// Begun with `once` or `reconcile`, without a recorded end: it runs, or was interrupted.
    Begun,
    /// It has ended so.
    Finished(OutcomeKind),
}

/// A key for another party.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentKey {
    /// The key.
    pub key: String,
    /// Its digest in logs: the `digest` of the event `key derived`.
    pub digest: KeyDigest,
}

// Without the key, with which a reader could confirm guesses.
debug_fields!(SentKey { digest });

/// The last entries of steps that an operator may settle: begun without an end, of unknown outcome, or with a value by
/// hand.
fn open_steps(journal: &Journal) -> Vec<JournalEntry> {
    let mut last: Vec<JournalEntry> = Vec::new();
    let mut by_hand: Vec<StepDigest> = Vec::new();
    for entry in journal.entries().map_while(Result::ok) {
        if entry.kind == EntryKind::Act {
            by_hand.push(entry.step);
        } else if entry.kind.is_step() {
            by_hand.retain(|step| *step != entry.step);
            last.retain(|other| other.step != entry.step);
            last.push(entry);
        }
    }
    last.retain(|entry| match entry.kind {
        EntryKind::Begun | EntryKind::Unknown => true,
        EntryKind::Value => by_hand.contains(&entry.step),
        _ => false,
    });
    last
}

impl Entry {
    /// The [steps](crate::step()) of its attempts, in the order of their last entries; without their results.
    ///
    /// Empty once the call is answered, and for an entry of a [listing](crate::Engine::entries), which does not read
    /// them.
    #[must_use]
    pub fn steps(&self) -> Vec<RecordedStep> {
        let mut steps: Vec<(_, RecordedStep)> = Vec::new();
        for entry in self.record.journal().entries().map_while(Result::ok) {
            // An act has the digest of the step that it settles.
            if entry.kind.is_step() {
                steps.retain(|(step, _)| *step != entry.step);
            }
            let state = match entry.kind.outcome() {
                Some(outcome) => StepState::Finished(outcome),
                None if entry.kind == EntryKind::Begun => StepState::Begun,
                None => continue,
            };
            let recorded = RecordedStep {
                name: entry.label,
                state,
                at: entry.at,
            };
            steps.push((entry.step, recorded));
        }
        steps.into_iter().map(|(_, recorded)| recorded).collect()
    }

    /// The key of [`Context::derive_key`](crate::Context::derive_key) in the call's body: the same in every attempt.
    ///
    /// With it an operator finds the effect at the other party. The engine must have the [digest
    /// key](crate::EngineBuilder::digest_key) that the calling engine has, or neither has one. `None` for an entry that
    /// was found by its digest, if the engine has a digest key: the entry of the call itself has it.
    #[must_use]
    pub fn derive_key(&self, label: &str) -> Option<SentKey> {
        let plain = self.plain.as_ref()?;
        Some(self.sent(plain, &derived_key::of_label(plain, label)))
    }

    /// The key of the call's [step](crate::step()) of this name: [`Step::key`](crate::Step::key).
    ///
    /// As [`derive_key`](Self::derive_key). The name is a text: a step whose name is a tuple has another key, and where the
    /// record has only such steps under this name it is `None`.
    #[must_use]
    pub fn step_key(&self, name: &str) -> Option<SentKey> {
        let plain = self.plain.as_ref()?;
        let digest = self.step_digest(name)?;
        let journal = self.record.journal();
        let steps = journal.entries().map_while(Result::ok);
        let mut named = steps
            .filter(|entry| entry.kind.is_step() && entry.label == name)
            .peekable();
        if named.peek().is_some() && !named.any(|entry| digest.as_bytes().starts_with(&entry.step))
        {
            return None;
        }
        let name = derived_key::step_name(name).ok()?;
        Some(self.sent(plain, &derived_key::of_step(plain, &name)))
    }

    fn sent(&self, plain: &KeyDigest, derived: &KeyDigest) -> SentKey {
        let digests = self.core.digests_of(&self.key, plain);
        SentKey {
            key: derived.to_string(),
            digest: derived_key::shown(digests, plain, derived),
        }
    }

    /// Resets the record, and settles open steps: begun without an end, or of unknown outcome.
    ///
    /// As [`reset`](Self::reset), and the next call
    ///
    /// - gets the value of a step that has [`Landed`](Reconciled::Landed): JSON, as the step's `Ok` value serializes.
    ///   Whether the step can read it is not checked;
    /// - runs a step that has [`NotLanded`](Reconciled::NotLanded). **If it had its effect, that happens again**;
    /// - treats as before a step that is [`Unknown`](Reconciled::Unknown).
    ///
    /// A name is the first part of a step's name, as [`steps`](Self::steps) shows it. Finished steps of the same name are
    /// kept, except that a value by hand may be corrected, as long as the record remembers the act.
    ///
    /// # Errors
    ///
    /// As [`reset`](Self::reset). [`ErrorKind::InvalidStep`](crate::ErrorKind::InvalidStep) if the record has no open step
    /// of one of these names, and for a value if it has several, or none whose type is known (an earlier version began
    /// it), or one with a name of several parts where answers are [encrypted](crate::EngineBuilder::encrypt);
    /// [`ErrorKind::NotStored`](crate::ErrorKind::NotStored) for a value that is not JSON, or too long. With each of these
    /// nothing has changed.
    ///
    /// # Cancel safety
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn reset_steps(self, steps: &[(&str, Reconciled<&str>)]) -> Result<(), Error> {
        let seen = self.journal().await?;
        let (journal, said) = self.settled(&seen, steps)?;
        let journal = self.changed_of(&journal, OperatorVerb::Reset, &said);
        self.reset_to(&seen, &journal).await
    }

    /// The journal with the ends of these steps, and its acts.
    fn settled(
        &self,
        journal: &Journal,
        steps: &[(&str, Reconciled<&str>)],
    ) -> Result<(Journal, Vec<(StepDigest, String)>), Error> {
        let refused = |kind, why: &str| Err(self.unchanged(kind, why));
        let mut open = open_steps(journal);
        let (mut settled, mut said) = (journal.clone(), Vec::new());
        for (name, verdict) in steps {
            let mut named: Vec<_> = open.extract_if(.., |entry| entry.label == *name).collect();
            if named.iter().any(|entry| entry.kind != EntryKind::Value) {
                named.retain(|entry| entry.kind != EntryKind::Value);
            }
            if named.is_empty() {
                let detail = format!(
                    "the record has no step `{name}` whose outcome is not known, or the name was given twice"
                );
                return refused(ErrorKind::InvalidStep, &detail);
            }
            match verdict {
                Reconciled::Unknown => {}
                Reconciled::NotLanded => {
                    for open in named {
                        said.push((open.step, format!("{name} did not happen")));
                        settled = settled.and(&JournalEntry {
                            kind: EntryKind::Void,
                            schema: 0,
                            body: Bytes::new(),
                            ..open
                        });
                    }
                }
                Reconciled::Landed(json) => {
                    let [open] = &named[..] else {
                        let detail =
                            "several open steps have this name, and a value is that of one of them";
                        return refused(ErrorKind::InvalidStep, detail);
                    };
                    said.push((open.step, format!("{name} happened")));
                    settled = settled.and(&self.landed(open, json)?);
                }
            }
        }
        let settled = settled.compacted();
        let most = self.core.max_journal_bytes();
        if settled.as_bytes().len() > most.max(journal.as_bytes().len()) {
            return refused(ErrorKind::NotStored, "the value is too long for the record");
        }
        Ok((settled, said))
    }

    /// The end of an open step, with a value as JSON.
    fn landed(&self, open: &JournalEntry, json: &str) -> Result<JournalEntry, Error> {
        let refused = |kind, why: &str| Err(self.unchanged(kind, why));
        let Some(encoded) = Encoded::json(OutcomeKind::Value, open.schema, json) else {
            return refused(ErrorKind::NotStored, "the value of the step is not JSON");
        };
        if open.schema == 0 {
            let detail = "an earlier version of idem began the step, and has not recorded the type of its value: let it \
                          run again if it did not happen, or resolve the whole call";
            return refused(ErrorKind::InvalidStep, detail);
        }
        let digest = self.step_digest(&open.label);
        let digest = digest.filter(|digest| digest.as_bytes().starts_with(&open.step));
        if digest.is_none() && self.core.format.encrypts() {
            let detail = "results are encrypted for the whole name of a step, and this name has several parts, or is not \
                          known because the entry was found by its digest";
            return refused(ErrorKind::InvalidStep, detail);
        }
        // Without encryption the digest is not part of it.
        let digest = digest.unwrap_or(KeyDigest::from_bytes([0; 32]));
        match self.core.format.seal(&digest, Fingerprint::NONE, encoded) {
            Encoded::Store(answer) if answer.outcome == OutcomeKind::Value => Ok(JournalEntry {
                kind: EntryKind::Value,
                at: self.core.clock.calendar(),
                body: Bytes::from(answer.record).slice(HEADER..),
                ..open.clone()
            }),
            _ => refused(
                ErrorKind::NotStored,
                "the value is too long, or could not be encrypted",
            ),
        }
    }

    /// The digest of a step whose name is this text.
    fn step_digest(&self, name: &str) -> Option<KeyDigest> {
        let plain = self.plain.as_ref()?;
        let name = derived_key::step_name(name).ok()?;
        let digests = self.core.digests_of(&self.key, plain);
        Some(digests.step(StepPart::Name, plain, name.as_bytes()))
    }
}
