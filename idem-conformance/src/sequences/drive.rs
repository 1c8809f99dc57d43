//! Runs a sequence on a store and on the model, comparing replies.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::admin::EntryFilter;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::author::{
    AnswerTypes, AppendReply, ClaimReply, ClaimRequest, Header, Journal, JournalKind, Needs,
    ReadReply, Record, Remains, State, Watch,
};
use idem_runtime::store::{Fence, OutcomeKind};

use super::call::{Call, Listing, Reply, Written, caught, encoded, is_answered};
use super::history::{History, Observed, Step};
use super::model::{Expected, Model, adds_lapsed, is_claim};
use super::operation::{Choices, Kind, Operation, Theme};
use super::setting::{KEYS, OWNERS, Setting};
use crate::fixture::Fixture;
use crate::notified::in_time;

/// The durations of a store: whole steps, and half of one more where time advances by itself, so that no moment comes
/// near another one by accident.
struct Scale {
    step: Duration,
    offset: Duration,
    /// How far "just before" is.
    early: Duration,
}

impl Scale {
    fn of(drift: Duration) -> Self {
        if drift.is_zero() {
            return Self {
                step: Duration::from_secs(3),
                offset: Duration::ZERO,
                early: Duration::from_millis(1),
            };
        }
        Self {
            step: Duration::from_secs(120),
            offset: Duration::from_secs(60),
            early: Duration::from_secs(30),
        }
    }

    fn time(&self, steps: u32) -> Duration {
        self.step * steps + self.offset
    }
}

/// An owner's knowledge of its claim.
#[derive(Clone)]
struct Held {
    claim: Header,
    journal: Journal,
    /// The bytes of the journal that the store has confirmed.
    confirmed: usize,
}

struct Driver<'a> {
    setting: &'a Setting,
    scale: Scale,
    model: Model,
    held: [[Option<Held>; OWNERS]; KEYS],
    /// A call's operations, by the smallest numbers that make the same choices.
    made: Vec<Operation>,
    steps: Vec<Step>,
    watches: Vec<Watching>,
    /// The claims that were held: the key, what does not differ in a copy, and when the lease ends.
    claims: Vec<(usize, Header, Duration)>,
}

/// A watch, by its step.
struct Watching {
    step: usize,
    watch: Watch,
    /// A claim was granted since that no poll has seen: a store need not notify of its end.
    is_unseen: bool,
}

/// Runs a sequence on the keys of a number. The error has the calls up to the reply that is not the model's.
///
/// `patience` bounds the wait for a notification.
pub(super) async fn run(
    fixture: &Arc<dyn Fixture>,
    keys: u64,
    patience: Duration,
    (name, theme): (&'static str, Theme),
    sequence: &[Operation],
) -> Result<(), History> {
    let setting = Setting::of_run(fixture, keys, patience);
    let mut driver = Driver {
        scale: Scale::of(fixture.drift()),
        setting: &setting,
        model: Model::new(setting.store.keeps_journals(), fixture.drift().is_zero()),
        held: Default::default(),
        made: Vec::new(),
        steps: Vec::new(),
        watches: Vec::new(),
        claims: Vec::new(),
    };
    let outcome = driver.all(theme, sequence).await;
    // The records of this run are no burden to the next.
    let by = driver.scale.step * 100;
    let _ = caught(Call::Advance { by }.send(&setting)).await;
    outcome.map_err(|observed| {
        let made = (name, keys, driver.made);
        History::new(made, &setting, &driver.steps, &observed)
    })
}

fn print(number: u8) -> Fingerprint {
    match number {
        0 => Fingerprint::NONE,
        number => Fingerprint::from_bytes([number; 16]),
    }
}

/// Bytes that a text protocol would corrupt; those of 3 have the same value as those of 1, and another error.
fn types(number: u8) -> AnswerTypes {
    AnswerTypes::from_bytes(match number {
        0 => [0; 4],
        1 => [0x0d, 0x0a, 0, 0x24],
        2 => [0, 0x24, 0, 0x24],
        _ => [0x0d, 0x0a, 0xff, 0xfe],
    })
}

/// A header that differs in this field; 0: in none.
fn altered(mut header: Header, field: u8) -> Header {
    match field {
        1 => header.attempts = header.attempts.wrapping_add(1),
        2 => header.fence = Fence::new(header.fence.get() + 1),
        3 => header.retain *= 2,
        4 => header.fingerprint = print(u8::from(header.fingerprint.is_none())),
        5 => header.types = types(u8::from(header.types.is_unknown())),
        6 => {
            header.state = match header.state {
                State::Pending { lease } => State::Pending { lease: lease * 2 },
                State::Done { outcome, schema } => {
                    let schema = schema + 1;
                    State::Done { outcome, schema }
                }
                _ => State::Pending {
                    lease: Duration::from_secs(6),
                },
            };
        }
        _ => {}
    }
    header
}

fn steps_behind(journal: &Journal, steps: &[u8]) -> Journal {
    Journal::new([&journal.as_bytes()[..], steps].concat().into())
}

fn joined(one: &Journal, other: &Journal) -> Journal {
    Journal::new([&one.as_bytes()[..], other.as_bytes()].concat().into())
}

impl Driver<'_> {
    async fn all(&mut self, theme: Theme, sequence: &[Operation]) -> Result<(), Observed> {
        for operation in sequence {
            let mut choices = Choices::new(*operation);
            if let Some(call) = self.call(theme, &mut choices) {
                self.made.push(choices.counted());
                self.step(call).await?;
            }
        }
        for key in 0..KEYS {
            self.step(Call::Read { key }).await?;
        }
        Ok(())
    }

    /// An answer or a step of this many bytes. They differ from those of every other call.
    fn content(&self, bytes: usize) -> Vec<u8> {
        let calls = u8::try_from(self.steps.len()).unwrap_or(u8::MAX);
        vec![0xfe_u8.saturating_sub(calls); bytes]
    }

    /// The owner's last granted claim, or a merely supposed one.
    fn held(&self, key: usize, owner: usize) -> Held {
        let lease = self.scale.time(2);
        let mut claim = Header::new(
            State::Pending { lease },
            self.setting.owners[owner],
            Fence::new(1),
            self.scale.time(10),
        );
        (claim.fingerprint, claim.types) = (print(1), types(1));
        let made_up = Held {
            claim,
            journal: Journal::default(),
            confirmed: 0,
        };
        self.held[key][owner].clone().unwrap_or(made_up)
    }

    /// The stored header and journal, or made-up ones.
    fn there(&self, key: usize) -> (Header, Journal) {
        match self.model.entry(key) {
            Some(entry) => (entry.header, entry.journal.clone()),
            None => (self.held(key, 0).claim, Journal::default()),
        }
    }

    /// The call of an operation, if there is one to make.
    fn call(&mut self, theme: Theme, choices: &mut Choices) -> Option<Call> {
        let kind = choices.of(theme);
        let key = choices.of(&[0, 0, 0, 0, 0, 1, 1, 2]);
        Some(match kind {
            Kind::Claim => self.claim(key, choices),
            Kind::Complete => self.complete(key, choices),
            Kind::Release => self.release(key, choices),
            Kind::Renew => {
                let claim = self.held(key, choices.of(&[0, 1, 2, 3])).claim;
                Call::Renew { key, claim }
            }
            Kind::Append => return self.append(key, choices),
            Kind::Resolve => self.resolve(key, choices),
            Kind::Again => return self.again(choices),
            Kind::Read => Call::Read { key },
            Kind::Poll => Call::Poll { key },
            Kind::AtHand => {
                let print = print(choices.of(&[1, 2, 0]));
                Call::AtHand { key, print }
            }
            Kind::List => Call::List(Listing {
                filter: choices.of(&[
                    EntryFilter::Any,
                    EntryFilter::Running,
                    EntryFilter::Abandoned,
                    EntryFilter::Released,
                    EntryFilter::Answered,
                    EntryFilter::NotStored,
                    EntryFilter::Unknown,
                    EntryFilter::Exhausted,
                ]),
                min_attempts: choices.of(&[0, 1, 2, 3]),
                limit: choices.of(&[100, 1]),
            }),
            Kind::Watch => Call::Watch { key },
            Kind::Listen => Call::Listen,
            Kind::Plant => self.plant(key, choices),
            Kind::Advance => Call::Advance {
                by: self.scale.step * choices.of(&[1, 2, 3, 5, 8]),
            },
            Kind::Lapse => return self.until(self.model.lease_left(key)?, choices),
            Kind::Expire => return self.until(self.model.life_left(key)?, choices),
        })
    }

    fn until(&self, left: Duration, choices: &mut Choices) -> Option<Call> {
        let early = choices.of(&[false, true]);
        let early = if early {
            self.scale.early
        } else {
            Duration::ZERO
        };
        let by = left.checked_sub(early).filter(|by| !by.is_zero())?;
        Some(Call::Advance { by })
    }

    fn claim(&self, key: usize, choices: &mut Choices) -> Call {
        let owner = self.setting.owners[choices.of(&[0, 1, 0, 1, 2, 3])];
        let lease = self.scale.time(choices.of(&[1, 2, 3, 6]));
        let retain = self.scale.time(choices.of(&[12, 13, 20, 40]));
        let mut request = ClaimRequest::new(owner, lease, retain);
        request.fingerprint = print(choices.of(&[1, 1, 1, 1, 1, 2, 0]));
        request.types = types(choices.of(&[1, 1, 1, 1, 1, 1, 2, 0, 3]));
        request.any_type = choices.of(&[false, false, false, true]);
        request.max_attempts = NonZeroU16::new(choices.of(&[0, 1, 0, 2, 1]));
        request.reconciles = choices.of(&[false, false, true]);
        let needs = [Needs::Nothing, Needs::Verdict, Needs::Record];
        request.needs = needs[choices.of(&[0, 0, 0, 0, 0, 1, 1, 2])];
        // A verdict is that of a caller that does not reconcile any more.
        request.reconciles &= request.needs != Needs::Verdict;
        request.dated = choices.of(&[true, false]);
        request.records_attempts = self.model.keeps_journals && choices.of(&[false, true]);
        Call::Claim { key, request }
    }

    fn complete(&self, key: usize, choices: &mut Choices) -> Call {
        let held = self.held(key, choices.of(&[0, 1, 0, 1, 2, 3]));
        let outcome = choices.of(&[
            OutcomeKind::Value,
            OutcomeKind::Unknown,
            OutcomeKind::Error,
            OutcomeKind::Unknown,
            OutcomeKind::Tombstone,
        ]);
        // The cause of an unknown outcome that an unfinished reconciliation leaves, and any other word.
        let schema = choices.of(&[7, 4, 0x0d0a_00ff]);
        let mut header = held.claim;
        header.state = State::Done { outcome, schema };
        header.retain = self.scale.time(choices.of(&[4, 1, 30]));
        if let Some(other) = choices.of(&[None, None, None, None, Some(2), Some(0)]) {
            header.fingerprint = print(other);
        }
        if let Some(other) = choices.of(&[None, None, None, None, Some(2), Some(0)]) {
            header.types = types(other);
        }
        // 9: no claim is passed.
        let said = choices.of(&[9, 0, 0, 1, 9, 2, 3, 4]);
        let sized = self.content(choices.of(&[1, 0, 100, 8_191, 8_192, 8_193, 20_000]));
        let brings = choices.of(&[0, 0, 1, 2]);
        let (body, journal) = match (outcome, brings) {
            (OutcomeKind::Unknown, 1) => (Vec::new(), held.journal),
            (OutcomeKind::Unknown, 0) => (Vec::new(), Journal::default()),
            (OutcomeKind::Unknown, _) if self.model.keeps_journals => {
                (Vec::new(), joined(&held.journal, &self.setting.label))
            }
            (_, 2) if self.model.keeps_journals => (sized, self.setting.label.clone()),
            (OutcomeKind::Unknown, _) => (Vec::new(), Journal::default()),
            _ => (sized, Journal::default()),
        };
        header.journal = journal.kind();
        Call::Complete {
            key,
            claim: (said < 9).then(|| altered(held.claim, said)),
            record: encoded(&header, &body, &journal),
        }
    }

    fn release(&self, key: usize, choices: &mut Choices) -> Call {
        let number = choices.of(&[0, 1, 0, 1, 2, 3]);
        let owner = self.setting.owners[number];
        let remains = choices.of(&[Remains::Attempt, Remains::Request, Remains::Nothing]);
        let own = self.held(key, number).journal;
        let journal = match choices.of(&[0, 0, 1, 2, 3]) {
            _ if !self.model.keeps_journals => None,
            0 => None,
            1 => Some(own),
            2 => Some(joined(&own, &self.setting.label)),
            _ => Some(self.setting.label.clone()),
        };
        let seen = match choices.of(&[0, 0, 1, 2]) {
            0 => None,
            1 => Some(self.there(key).1),
            _ => Some(steps_behind(&Journal::default(), &self.content(1))),
        };
        Call::Release {
            key,
            owner,
            remains,
            seen: seen.filter(|_| journal.is_some()),
            journal,
        }
    }

    fn append(&mut self, key: usize, choices: &mut Choices) -> Option<Call> {
        let owner = choices.of(&[0, 1, 0, 1, 2, 3]);
        let mut held = self.held(key, owner);
        // Some journals are longer than a script reads of an answer.
        let adds = choices.of(&[1, 3, 50, 8_190, 20_000, 0]);
        let known = choices.of(&[held.confirmed, 0]);
        held.journal = steps_behind(&held.journal, &self.content(adds));
        if held.journal.is_empty() {
            return None;
        }
        let call = Call::Append {
            key,
            claim: held.claim,
            journal: held.journal.clone(),
            known,
        };
        if self.model.keeps_journals {
            self.held[key][owner] = Some(held);
        }
        Some(call)
    }

    fn resolve(&self, key: usize, choices: &mut Choices) -> Call {
        let (there, journal) = self.there(key);
        let resolver = self.setting.owners[choices.of(&[4, 5])];
        let seen = match choices.of(&[0, 0, 0, 0, 1, 2, 3]) {
            1 => self.held(key, 0).claim,
            2 => self.held(key, 1).claim,
            _ => there,
        };
        let seen = altered(seen, choices.of(&[0, 0, 0, 0, 1, 2, 3, 4, 5, 6]));
        let outcome = choices.of(&[
            None,
            Some(OutcomeKind::Value),
            Some(OutcomeKind::Unknown),
            Some(OutcomeKind::Error),
            Some(OutcomeKind::Tombstone),
        ]);
        let schema = 9;
        let state = outcome.map_or(State::Released, |outcome| State::Done { outcome, schema });
        let ahead = choices.of(&[0, 5]);
        let fence = match ahead {
            0 => Fence::default(),
            more => Fence::new(there.fence.get() + more),
        };
        let retain = self.scale.time(choices.of(&[4, 1, 30]));
        let mut header = Header::new(state, resolver, fence, retain);
        header.attempts = 9;
        header.fingerprint = print(choices.of(&[0, 1, 2]));
        header.types = types(choices.of(&[0, 1, 2]));
        let sized = self.content(choices.of(&[1, 0, 8_193]));
        let brings = choices.of(&[0, 1, 2]);
        let read = choices.of(&[0, 1, 2]);
        let (body, brought) = match (outcome, brings) {
            (None | Some(OutcomeKind::Unknown), 1) => (Vec::new(), journal.clone()),
            (None | Some(OutcomeKind::Unknown), 2) if self.model.keeps_journals => {
                (Vec::new(), self.setting.label.clone())
            }
            (None | Some(OutcomeKind::Unknown), _) => (Vec::new(), Journal::default()),
            _ => (sized, Journal::default()),
        };
        header.journal = brought.kind();
        Call::Resolve {
            key,
            seen,
            journal: match read {
                0 => None,
                1 => Some(journal),
                _ => Some(steps_behind(&journal, &self.content(1))),
            },
            record: encoded(&header, &body, &brought),
        }
    }

    /// A record that no call writes soon, or bytes that are none.
    fn plant(&self, key: usize, choices: &mut Choices) -> Call {
        let (mut header, journal) = self.there(key);
        let life = header.retain;
        let is_claim = is_claim(&header);
        let whole = |header: &Header| encoded(header, b"", &journal).0;
        let bytes = match choices.of(&[0, 1, 2, 3, 4, 5, 6]) {
            _ if !is_claim => Bytes::from_static(b"5D"),
            0 => {
                header.attempts = u16::MAX;
                whole(&header)
            }
            1 => {
                header.attempts = 0xff;
                whole(&header)
            }
            2 => {
                header.attempts = 0;
                whole(&header)
            }
            3 => {
                let mut bytes = whole(&header).to_vec();
                bytes[1] = b'X';
                bytes.into()
            }
            4 => {
                Bytes::from_static(b"5D of a later version, and long enough to be a record of one")
            }
            5 => Bytes::from_static(b"5"),
            _ => Bytes::new(),
        };
        let bytes = Written(bytes);
        Call::Plant { key, bytes, life }
    }

    /// An earlier call, sent again or arriving late.
    fn again(&self, choices: &mut Choices) -> Option<Call> {
        let back = choices.of(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let call = &self.steps.iter().rev().nth(back - 1)?.call;
        match call {
            // A journal only grows within one claim.
            Call::Append { key, claim, .. } => {
                let is_held = |held: &Held| {
                    (held.claim.owner, held.claim.fence) == (claim.owner, claim.fence)
                };
                let mut held = self.held[*key].iter().flatten();
                held.any(is_held).then(|| call.clone())
            }
            Call::Claim { .. }
            | Call::Complete { .. }
            | Call::Release { .. }
            | Call::Renew { .. }
            | Call::Resolve { .. } => Some(call.clone()),
            _ => None,
        }
    }

    /// Makes a call. The error is the observation instead of the model's reply.
    async fn step(&mut self, call: Call) -> Result<(), Observed> {
        self.setting.clear();
        let mut expected = self.model.apply(&call);
        let observed = caught(self.send(&call)).await;
        let settled = match (&call, &observed) {
            (Call::Poll { key }, Reply::Poll(ReadReply::Found { record, left }))
                if self.is_copy(*key, &record.header, *left) =>
            {
                expected.reply.clone()
            }
            _ => self.settled(&expected, observed.clone()),
        };
        let agree = settled == expected.reply;
        if agree {
            self.learn(&call, &observed, &mut expected);
        }
        let held = |key| Some((key, self.model.entry(key)?, self.model.lease_left(key)?));
        if let Some((key, entry, left)) = call.key().and_then(held) {
            (self.claims).push((key, copied(&entry.header), self.model.now + left));
        }
        let (key, notifies, resolves) = (call.key(), expected.notifies, expected.resolves);
        self.steps.push(Step { call, expected });
        if !agree {
            return Err(Observed::Reply(observed));
        }
        if notifies {
            self.assert_watches(key).await?;
        }
        match key {
            Some(key) if resolves && !self.setting.is_told(key).await => Err(Observed::NoListener),
            _ => Ok(()),
        }
    }

    async fn assert_watches(&mut self, key: Option<usize>) -> Result<(), Observed> {
        let patience = self.setting.patience;
        for it in &mut self.watches {
            let is_of = self.steps[it.step].call.key() == key;
            if is_of && !it.is_unseen && !in_time(patience, it.watch.changed()).await {
                return Err(Observed::NoWatch(it.step + 1));
            }
        }
        Ok(())
    }

    async fn send(&mut self, call: &Call) -> Reply {
        let setting = self.setting;
        match call {
            Call::Watch { key } => match setting.store.watch(&setting.keys[*key]).await {
                Ok(watch) => {
                    let step = self.steps.len();
                    self.watches.extend(watch.map(|watch| Watching {
                        step,
                        watch,
                        is_unseen: false,
                    }));
                    Reply::Nothing
                }
                Err(error) => Reply::Failed(error.to_string()),
            },
            call => call.send(setting).await,
        }
    }

    /// Whether a poll may show this claim before its lease is over. It may have ended since.
    fn is_copy(&self, key: usize, claim: &Header, left: Duration) -> bool {
        let ends = self.model.now + claim.lease_left(left);
        let drift = self.setting.fixture.drift();
        let is_of = |(of, header, end): &(usize, Header, Duration)| {
            *of == key && *header == copied(claim) && ends <= *end + drift
        };
        is_claim(claim) && self.claims.iter().any(is_of)
    }

    /// Replaces values that the model leaves open, if they are in range.
    fn settled(&self, expected: &Expected, mut observed: Reply) -> Reply {
        let drift = self.setting.fixture.drift();
        let mut model = expected.reply.clone();
        match (&mut observed, &mut model) {
            (Reply::CannotList, _) => return model,
            (Reply::AtHand(None), Reply::AtHand(_)) if expected.optional => return model,
            (Reply::Listed((found, _)), Reply::Listed((model, _))) => {
                for (key, (_, left)) in found {
                    if let Some((_, life)) = model.get(key) {
                        near(left, *life, drift);
                    }
                }
                return observed;
            }
            (Reply::Claim(claim), Reply::Claim(model)) => settle_grant(expected, claim, model),
            _ => {}
        }
        let is_read = matches!(observed, Reply::Read(_));
        let (Some((left, record)), Some((life, whole))) = (observed.parts(), model.parts()) else {
            return observed;
        };
        match expected.at_most {
            // A copy may expire by another clock.
            Some(most) if *left <= most + drift + Duration::from_millis(1) => *left = *life,
            _ => near(left, *life, drift),
        }
        if let (Some(record), Some(whole)) = (record, whole) {
            // A store may leave the journal out of a record without an answer, and mark the bytes of a record that is
            // watched.
            let is_right = if is_read {
                is_record(record, whole, &whole.header, &whole.journal())
            } else {
                is_answer(record, whole)
            };
            if is_right {
                *record = whole.clone();
            }
        }
        observed
    }

    /// Takes over the store's choice.
    fn learn(&mut self, call: &Call, observed: &Reply, expected: &mut Expected) {
        match (call, observed) {
            (Call::Claim { key, request, .. }, Reply::Claim(reply)) => {
                let (ClaimReply::Granted { fence, journal, .. }
                | ClaimReply::Reconcile { fence, journal, .. }) = reply
                else {
                    return;
                };
                expected.reply = observed.clone();
                self.model.learn(*key, *fence, journal);
                self.see(*key, true);
                let owner = self.setting.owners.iter();
                let owner = owner.enumerate().find(|(_, of)| **of == request.owner);
                if let (Some((owner, _)), Some(entry)) = (owner, self.model.entry(*key)) {
                    let mut claim = entry.header;
                    claim.journal = JournalKind::None;
                    self.held[*key][owner] = Some(Held {
                        claim,
                        journal: journal.clone(),
                        confirmed: journal.as_bytes().len(),
                    });
                }
            }
            (
                Call::Append {
                    key,
                    claim,
                    journal,
                    ..
                },
                Reply::Append(AppendReply::Appended | AppendReply::Reasserted),
            ) => {
                for held in self.held[*key].iter_mut().flatten() {
                    if held.claim.owner == claim.owner {
                        held.confirmed = held.confirmed.max(journal.as_bytes().len());
                    }
                }
            }
            (Call::Poll { key }, Reply::Poll(ReadReply::Found { record, .. })) => {
                let stored = self.model.entry(*key).map(|entry| entry.header.owner);
                if stored == Some(record.header.owner) {
                    self.model.see(*key);
                    self.see(*key, false);
                }
            }
            _ => {}
        }
    }

    fn see(&mut self, key: usize, is_unseen: bool) {
        for watching in &mut self.watches {
            if self.steps[watching.step].call.key() == Some(key) {
                watching.is_unseen = is_unseen;
            }
        }
    }
}

/// Whether a record has this header and journal, and the model's answer.
fn is_record(record: &Record, model: &Record, header: &Header, journal: &Journal) -> bool {
    // The bytes behind a header without an answer are its journal.
    let has_body = is_answered(header.state) || journal.is_empty();
    record.header == *header
        && record.journal() == *journal
        && (!has_body || record.body() == model.body())
}

/// Whether a record is the model's, as a caller gets it: a store may leave out the journal of a record without an
/// answer.
fn is_answer(record: &Record, model: &Record) -> bool {
    let bare = with!(model.header, journal: JournalKind::None);
    is_record(record, model, &model.header, &model.journal())
        || !is_answered(model.header.state) && record.header == bare && record.body().is_empty()
}

/// The common part of a claim and its copies.
fn copied(claim: &Header) -> Header {
    with!(*claim, state: State::Released, retain: Duration::ZERO, journal: JournalKind::None)
}

/// Replaces a remaining time by the model's. It may exceed that by the drift.
fn near(left: &mut Duration, model: Duration, drift: Duration) {
    if *left <= model && *left + drift >= model {
        *left = model;
    }
}

/// A grant's fence and journal are the store's choice, within limits.
fn settle_grant(expected: &Expected, claim: &mut ClaimReply, model: &ClaimReply) {
    let (
        ClaimReply::Granted { fence, journal, .. } | ClaimReply::Reconcile { fence, journal, .. },
        ClaimReply::Granted {
            fence: last,
            journal: before,
            ..
        }
        | ClaimReply::Reconcile {
            fence: last,
            journal: before,
            ..
        },
    ) = (claim, model)
    else {
        return;
    };
    let is_lapsed = |claim| adds_lapsed(journal, before, claim);
    let is_right = expected.lapsed.as_ref().is_none_or(is_lapsed);
    let is_next = if expected.new_fence {
        *fence > *last
    } else {
        *fence == *last
    };
    if is_next && is_right {
        *fence = *last;
        if expected.lapsed.is_some() {
            *journal = before.clone();
        }
    } else {
        // Equal to no expected reply.
        *fence = Fence::new(u64::MAX);
    }
}
