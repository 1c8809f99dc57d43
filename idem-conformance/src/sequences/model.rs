//! The model: what each operation does to a record, and its reply, without the code of any store.
//!
//! It knows the public types of records, and neither `store::claim` nor any other transition of the runtime.

use std::collections::BTreeMap;
use std::time::Duration;

use idem_runtime::admin::{AttemptEnd, EntryFilter};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::author::{
    AnswerTypes, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal,
    JournalKind, Needs, Owner, ReadReply, Record, ReleaseReply, Remains, RenewReply, ResolveReply,
    State, Unreadable,
};
use idem_runtime::store::{Fence, OutcomeKind};

use super::call::{Call, Listing, Reply, encoded, is_answered};
use super::setting::KEYS;

/// Minimum retention of a released record of which nothing remains.
const RELEASED_AT_LEAST: Duration = Duration::from_secs(10);
/// The cause of an unknown outcome that an undecided reconciliation leaves.
const UNDECIDED: u32 = 4;

/// A record, with its answer and its journal.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) header: Header,
    body: Vec<u8>,
    pub(super) journal: Journal,
    /// When its lease began.
    since: Duration,
    /// Whether its end notifies the watches of its key: a watch or a poll has seen it.
    seen: bool,
}

#[derive(Clone, Debug)]
struct Kept {
    value: Result<Entry, Unreadable>,
    ends: Duration,
}

/// The expected reply, and the store's choices.
#[derive(Clone, Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a freedom or a duty of its own"
)]
pub(super) struct Expected {
    pub(super) reply: Reply,
    /// The grant's fence is the reply's: any above the last one.
    pub(super) new_fence: bool,
    /// The journal of the grant has one entry more: this attempt, which has lapsed.
    pub(super) lapsed: Option<Header>,
    /// The remaining life in the reply is any up to this one.
    pub(super) at_most: Option<Duration>,
    /// `None` at hand is as good.
    pub(super) optional: bool,
    /// The watches and the listener of this key are notified.
    pub(super) notifies: bool,
    /// The listener is notified.
    pub(super) resolves: bool,
}

impl From<Reply> for Expected {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            ..Self::default()
        }
    }
}

impl From<ClaimReply> for Expected {
    fn from(reply: ClaimReply) -> Self {
        Reply::Claim(reply).into()
    }
}

impl Entry {
    pub(super) fn is_claim(&self) -> bool {
        is_claim(&self.header)
    }

    fn is_reconciling(&self) -> bool {
        matches!(self.header.state, State::Reconciling { .. })
    }

    fn outcome(&self) -> Option<OutcomeKind> {
        match self.header.state {
            State::Done { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    fn is_answered(&self) -> bool {
        is_answered(self.header.state)
    }

    fn is_success(&self) -> bool {
        matches!(
            self.outcome(),
            Some(OutcomeKind::Value | OutcomeKind::Tombstone)
        )
    }

    fn lease_left(&self, now: Duration) -> Duration {
        match self.header.state {
            State::Pending { lease } | State::Reconciling { lease } => {
                (self.since + lease).saturating_sub(now)
            }
            _ => Duration::ZERO,
        }
    }

    /// The record that a reader gets.
    fn record(&self) -> Record {
        let bytes = encoded(&self.header, &self.body, &self.journal);
        bytes.record().expect("the model's records are whole")
    }

    /// This entry, in the place of another: the attempts, the higher fence and the known fingerprint stay.
    fn in_place_of(mut self, there: &Self) -> Self {
        self.header.attempts = there.header.attempts;
        self.header.fence = self.header.fence.max(there.header.fence);
        if !there.header.fingerprint.is_none() {
            self.header.fingerprint = there.header.fingerprint;
        }
        if self.header.types.is_unknown() {
            self.header.types = there.header.types;
        }
        let is_unknown = self.outcome() == Some(OutcomeKind::Unknown);
        if is_unknown && !there.is_answered() {
            let (brought, kept) = (&self.journal, &there.journal);
            // A later attempt has all that the store confirmed to an earlier one.
            let is_later =
                there.header.state == State::Released && there.header.owner != self.header.owner;
            if is_later || kept.as_bytes().len() >= brought.as_bytes().len() {
                self.journal = kept.clone();
            }
        }
        if !self.is_answered() {
            self.header.journal = self.journal.kind();
        }
        self
    }

    fn passes(&self, listing: &Listing, now: Duration) -> bool {
        let lapsed = self.lease_left(now).is_zero();
        let is_pending = self.is_claim() && !self.is_reconciling();
        let is_released = self.header.state == State::Released;
        let is_abandoned = is_pending && lapsed;
        self.header.attempts >= listing.min_attempts
            && match listing.filter {
                EntryFilter::Running => self.is_claim() && !lapsed,
                EntryFilter::Abandoned => is_abandoned,
                EntryFilter::Released => is_released,
                EntryFilter::Exhausted => is_abandoned || is_released,
                EntryFilter::Answered => matches!(
                    self.outcome(),
                    Some(OutcomeKind::Value | OutcomeKind::Error)
                ),
                EntryFilter::NotStored => self.outcome() == Some(OutcomeKind::Tombstone),
                EntryFilter::Unknown => {
                    self.outcome() == Some(OutcomeKind::Unknown) || self.is_reconciling() && lapsed
                }
                _ => true,
            }
    }
}

fn same_request(one: Fingerprint, other: Fingerprint) -> bool {
    one == other || one.is_none() || other.is_none()
}

fn same_type(one: AnswerTypes, other: AnswerTypes) -> bool {
    let value = |types: AnswerTypes| [types.to_bytes()[0], types.to_bytes()[1]];
    value(one) == value(other) || value(one) == [0, 0] || value(other) == [0, 0]
}

/// The keys of a store, at its time.
#[derive(Clone, Debug)]
pub(super) struct Model {
    keys: [Option<Kept>; KEYS],
    pub(super) now: Duration,
    pub(super) keeps_journals: bool,
    /// Whether the store's clock is moved. Otherwise its records are aged, which a life counted from the claim does not
    /// show.
    has_clock: bool,
    /// The last fence of each key, which outlives its record.
    fences: [Fence; KEYS],
}

impl Model {
    pub(super) fn new(keeps_journals: bool, has_clock: bool) -> Self {
        Self {
            keys: Default::default(),
            now: Duration::ZERO,
            keeps_journals,
            has_clock,
            fences: Default::default(),
        }
    }

    fn kept(&self, key: usize) -> Option<&Kept> {
        self.keys[key].as_ref().filter(|kept| self.now < kept.ends)
    }

    /// The readable record of a key.
    pub(super) fn entry(&self, key: usize) -> Option<&Entry> {
        self.kept(key)?.value.as_ref().ok()
    }

    /// The remaining lease of a held claim.
    pub(super) fn lease_left(&self, key: usize) -> Option<Duration> {
        let left = self.entry(key)?.lease_left(self.now);
        (!left.is_zero()).then_some(left)
    }

    pub(super) fn life_left(&self, key: usize) -> Option<Duration> {
        self.kept(key).map(|kept| kept.ends - self.now)
    }

    fn keep(&mut self, key: usize, mut entry: Entry) {
        entry.since = self.now;
        let ends = self.now + entry.header.retain;
        let value = Ok(entry);
        self.keys[key] = Some(Kept { value, ends });
    }

    fn entry_of(&self, header: Header, body: &[u8], journal: Journal) -> Entry {
        Entry {
            header,
            body: body.to_vec(),
            journal,
            since: self.now,
            seen: false,
        }
    }

    fn brought(&self, record: &Record) -> Entry {
        let body = if matches!(record.header.state, State::Done { .. }) {
            record.body()
        } else {
            &[]
        };
        self.entry_of(record.header, body, record.journal())
    }

    /// Takes over the store's choice of fence and journal for a claim.
    pub(super) fn learn(&mut self, key: usize, fence: Fence, journal: &Journal) {
        self.fences[key] = fence;
        if let Some(Kept {
            value: Ok(entry), ..
        }) = &mut self.keys[key]
        {
            entry.header.fence = fence;
            entry.header.journal = journal.kind();
            entry.journal = journal.clone();
        }
    }

    /// Applies a call. The expected reply is that of a store that keeps the contract.
    pub(super) fn apply(&mut self, call: &Call) -> Expected {
        match call {
            Call::Claim { key, request, .. } => self.claim(*key, request),
            Call::Complete { key, record, .. } => {
                let done = record.record().expect("it was encoded here");
                let done = self.brought(&done);
                let (reply, notifies) = self.complete(*key, done);
                Expected {
                    notifies,
                    ..Reply::Complete(reply).into()
                }
            }
            Call::Release {
                key,
                owner,
                remains,
                journal,
                seen,
            } => {
                let seen_now = self.entry(*key).is_some_and(|entry| entry.seen);
                let before = self.entry(*key).map(|entry| entry.header.state);
                let reply = self.release(*key, *owner, *remains, journal.as_ref(), seen.as_ref());
                let after = self.entry(*key).map(|entry| entry.header.state);
                Expected {
                    notifies: before != after && seen_now,
                    ..Reply::Release(reply).into()
                }
            }
            Call::Renew { key, claim } => Reply::Renew(self.renew(*key, claim)).into(),
            Call::Append {
                key,
                claim,
                journal,
                ..
            } => Reply::Append(self.append(*key, claim, journal)).into(),
            Call::Resolve {
                key,
                seen,
                journal,
                record,
            } => {
                let new = record.record().expect("it was encoded here");
                let is_seen = self.entry(*key).is_some_and(|entry| entry.seen);
                let (reply, wrote) = self.resolve(*key, seen, journal.as_ref(), &new);
                Expected {
                    notifies: wrote && is_seen,
                    resolves: wrote,
                    ..Reply::Resolve(reply).into()
                }
            }
            Call::Read { key } => Reply::Read(self.read(*key)).into(),
            Call::Poll { key } => {
                let reply = self.read(*key);
                let answered = self.entry(*key).filter(|entry| entry.is_answered());
                let at_most = answered.map(|entry| entry.header.retain);
                Expected {
                    at_most,
                    ..Reply::Poll(reply).into()
                }
            }
            Call::Watch { key } => {
                self.see(*key);
                Reply::Nothing.into()
            }
            Call::AtHand { key, print } => self.at_hand(*key, *print),
            Call::List(listing) => Reply::Listed(self.list(listing)).into(),
            Call::Plant { key, bytes, life } => {
                let value = bytes.record().map(|record| self.brought(&record));
                let ends = self.now + *life;
                self.keys[*key] = Some(Kept { value, ends });
                Reply::Nothing.into()
            }
            Call::Advance { by } => {
                self.now += *by;
                Reply::Nothing.into()
            }
            Call::Listen => Reply::Nothing.into(),
        }
    }

    pub(super) fn see(&mut self, key: usize) {
        if let Some(Kept {
            value: Ok(entry), ..
        }) = &mut self.keys[key]
        {
            entry.seen = true;
        }
    }

    fn claim(&mut self, key: usize, asked: &ClaimRequest) -> Expected {
        let Some(kept) = self.kept(key) else {
            return match asked.needs {
                Needs::Nothing => self.granted(key, asked, None),
                _ => ClaimReply::Absent.into(),
            };
        };
        let left = kept.ends - self.now;
        let entry = match &kept.value {
            Ok(entry) => entry.clone(),
            Err(why) => return ClaimReply::Unreadable(*why).into(),
        };
        let header = &entry.header;
        if !same_request(header.fingerprint, asked.fingerprint) {
            return ClaimReply::Mismatch.into();
        }
        let mine = header.owner == asked.owner;
        let lease_left = entry.lease_left(self.now);
        let running = Expected::from(ClaimReply::Running { lease_left });
        if asked.needs == Needs::Verdict && entry.outcome().is_none() && !(mine && entry.is_claim())
        {
            return running;
        }
        if header.state == State::Released && mine || !mine && !lease_left.is_zero() {
            return running;
        }
        let is_unknown = entry.outcome() == Some(OutcomeKind::Unknown) || entry.is_reconciling();
        let looks = !mine && is_unknown && asked.reconciles;
        if (entry.outcome().is_some() || entry.is_reconciling() && !mine) && !looks {
            let record = entry.record();
            let most = if self.has_clock { left } else { header.retain };
            return Expected {
                at_most: (!asked.dated).then_some(most),
                ..ClaimReply::Done { record, left }.into()
            };
        }
        if !mine && !asked.any_type && !same_type(header.types, asked.types) {
            return ClaimReply::OtherType.into();
        }
        let attempts = header.attempts;
        let goes_on = mine && (!entry.is_reconciling() || asked.reconciles);
        let looks = looks || !mine && asked.reconciles && attempts > 0;
        let is_spent = asked.max_attempts.is_some_and(|max| max.get() <= attempts);
        if !goes_on && !looks && is_spent {
            return ClaimReply::Exhausted { attempts }.into();
        }
        self.granted(key, asked, Some((entry, goes_on, looks)))
    }

    /// Writes a claim over the stored entry. Its owner continues it, or looks into it.
    fn granted(
        &mut self,
        key: usize,
        asked: &ClaimRequest,
        there: Option<(Entry, bool, bool)>,
    ) -> Expected {
        let lease = asked.lease;
        let mut header = Header::new(
            State::Pending { lease },
            asked.owner,
            Fence::default(),
            asked.retain,
        );
        (header.fingerprint, header.types) = (asked.fingerprint, asked.types);
        let (mut fresh, mut new_fence, mut seen) = (true, true, false);
        let (mut journal, mut lapsed) = (Journal::default(), None);
        if let Some((entry, goes_on, looks)) = there {
            let before = &entry.header;
            fresh = before.fingerprint.is_none();
            (header.fence, header.attempts) = (before.fence, before.attempts);
            if !fresh {
                header.fingerprint = before.fingerprint;
            }
            if asked.types.is_unknown() {
                header.types = before.types;
            }
            let mine = before.owner == asked.owner;
            if looks || goes_on && entry.is_reconciling() {
                header.state = State::Reconciling { lease };
            } else if !goes_on {
                header.attempts = before.attempts.saturating_add(1);
            }
            new_fence = !goes_on;
            seen = mine && entry.seen;
            let is_pending = entry.is_claim() && !entry.is_reconciling();
            if asked.records_attempts && !mine && is_pending {
                lapsed = Some(entry.header);
            }
            journal = entry.journal;
        } else if self.has_clock {
            header.fence = self.fences[key];
        }
        header.journal = journal.kind();
        let mut entry = self.entry_of(header, &[], journal.clone());
        entry.seen = seen;
        self.keep(key, entry);
        let (fence, attempt) = (header.fence, header.attempts);
        let reply = match header.state {
            State::Reconciling { .. } => ClaimReply::Reconcile {
                fence,
                attempts: attempt,
                journal,
            },
            _ => ClaimReply::Granted {
                fence,
                attempt,
                fresh,
                journal,
            },
        };
        Expected {
            new_fence,
            lapsed,
            ..reply.into()
        }
    }

    /// The reply, and whether a watch of the ended claim is notified.
    fn complete(&mut self, key: usize, done: Entry) -> (CompleteReply, bool) {
        let Some(kept) = self.kept(key) else {
            self.keep(key, done);
            return (CompleteReply::Stored { late: true }, false);
        };
        let left = kept.ends - self.now;
        let there = match &kept.value {
            Ok(entry) => entry.clone(),
            Err(why) => return (CompleteReply::Unreadable(*why), false),
        };
        let mine = there.header.owner == done.header.owner;
        if !same_request(there.header.fingerprint, done.header.fingerprint) {
            return (CompleteReply::Mismatch, false);
        }
        let success = done.is_success();
        match there.outcome() {
            Some(OutcomeKind::Unknown) if success => {}
            Some(_) if mine => return (CompleteReply::Stored { late: false }, false),
            Some(_) => {
                let record = there.record();
                return (CompleteReply::Adopted { record, left }, false);
            }
            None if there.is_claim() && !mine => {
                let lease_left = there.lease_left(self.now);
                // A success may be stored over a successor that has lapsed; an error may not.
                if !lease_left.is_zero() || !success {
                    return (CompleteReply::Superseded { lease_left }, false);
                }
            }
            None => {}
        }
        let seen = there.seen;
        self.keep(key, done.in_place_of(&there));
        (CompleteReply::Stored { late: !mine }, seen)
    }

    /// The reply, and whether the record was replaced.
    fn resolve(
        &mut self,
        key: usize,
        seen: &Header,
        journal: Option<&Journal>,
        new: &Record,
    ) -> (ResolveReply, bool) {
        let there = match self.kept(key).map(|kept| &kept.value) {
            None => return (ResolveReply::Absent, false),
            Some(Err(why)) => return (ResolveReply::Unreadable(*why), false),
            Some(Ok(entry)) => entry.clone(),
        };
        if there.header.owner == new.header.owner {
            return (ResolveReply::Resolved, false);
        }
        if there.header != *seen {
            return (ResolveReply::Changed, false);
        }
        let lease_left = there.lease_left(self.now);
        if !lease_left.is_zero() {
            return (ResolveReply::Running { lease_left }, false);
        }
        if there.is_claim() && journal.is_some_and(|seen| *seen != there.journal) {
            return (ResolveReply::Changed, false);
        }
        let mut entry = self.brought(new).in_place_of(&there);
        entry.header.types = new.header.types;
        if entry.header.state == State::Released {
            entry.header.attempts = 0;
        }
        self.keep(key, entry);
        (ResolveReply::Resolved, true)
    }

    fn release(
        &mut self,
        key: usize,
        owner: Owner,
        remains: Remains,
        journal: Option<&Journal>,
        seen: Option<&Journal>,
    ) -> ReleaseReply {
        let now = self.now;
        let Some(kept) = self.keys[key].as_mut().filter(|kept| now < kept.ends) else {
            return ReleaseReply::Absent;
        };
        let entry = match &mut kept.value {
            Ok(entry) => entry,
            Err(why) => return ReleaseReply::Unreadable(*why),
        };
        let state = match entry.header.state {
            _ if entry.header.owner != owner => return ReleaseReply::Superseded,
            State::Done {
                outcome: OutcomeKind::Unknown,
                schema: UNDECIDED,
            }
            | State::Released => return ReleaseReply::Released,
            State::Reconciling { .. } => State::Done {
                outcome: OutcomeKind::Unknown,
                schema: UNDECIDED,
            },
            State::Pending { .. } => State::Released,
            _ => return ReleaseReply::Superseded,
        };
        if seen.is_some_and(|seen| *seen != entry.journal) {
            return ReleaseReply::Superseded;
        }
        let before = entry.header.state;
        entry.header.state = state;
        if let State::Pending { lease } = before {
            if remains != Remains::Attempt {
                entry.header.attempts = entry.header.attempts.saturating_sub(1);
            }
            let has_steps = entry.header.journal == JournalKind::Steps;
            if remains == Remains::Nothing && entry.header.attempts == 0 && !has_steps {
                entry.header.fingerprint = Fingerprint::NONE;
                entry.header.types = AnswerTypes::UNKNOWN;
                entry.header.retain = lease.max(RELEASED_AT_LEAST);
                kept.ends = now + entry.header.retain;
            }
        }
        if let Some(journal) = journal {
            entry.journal = journal.clone();
            entry.header.journal = journal.kind();
        }
        ReleaseReply::Released
    }

    fn renew(&mut self, key: usize, claim: &Header) -> RenewReply {
        match self.kept(key).map(|kept| &kept.value) {
            None => {
                let entry = self.entry_of(*claim, &[], Journal::default());
                self.keep(key, entry);
                RenewReply::Reasserted
            }
            Some(Err(why)) => RenewReply::Unreadable(*why),
            Some(Ok(entry)) if entry.is_claim() && entry.header.owner == claim.owner => {
                let entry = entry.clone();
                self.keep(key, entry);
                RenewReply::Renewed
            }
            Some(Ok(_)) => RenewReply::Lost,
        }
    }

    /// `journal` is the whole one of the claim's owner.
    fn append(&mut self, key: usize, claim: &Header, journal: &Journal) -> AppendReply {
        if !self.keeps_journals {
            return AppendReply::Unsupported;
        }
        let (mut entry, reply) = match self.kept(key).map(|kept| &kept.value) {
            None => {
                let entry = self.entry_of(*claim, &[], Journal::default());
                (entry, AppendReply::Reasserted)
            }
            Some(Err(why)) => return AppendReply::Unreadable(*why),
            Some(Ok(entry)) if entry.is_claim() && entry.header.owner == claim.owner => {
                (entry.clone(), AppendReply::Appended)
            }
            Some(Ok(_)) => return AppendReply::Lost,
        };
        if entry.journal.as_bytes().len() < journal.as_bytes().len() {
            entry.journal = journal.clone();
        }
        entry.header.journal = entry.journal.kind();
        self.keep(key, entry);
        reply
    }

    fn read(&self, key: usize) -> ReadReply {
        match self.kept(key) {
            None => ReadReply::Absent,
            Some(kept) => match &kept.value {
                Err(why) => ReadReply::Unreadable(*why),
                Ok(entry) => ReadReply::Found {
                    record: entry.record(),
                    left: kept.ends - self.now,
                },
            },
        }
    }

    fn at_hand(&self, key: usize, print: Fingerprint) -> Expected {
        let is_asked =
            |entry: &&Entry| entry.is_answered() && same_request(entry.header.fingerprint, print);
        let found = self.entry(key).filter(is_asked).map(Entry::record);
        Expected {
            optional: true,
            ..Reply::AtHand(found.zip(self.life_left(key))).into()
        }
    }

    fn list(&self, listing: &Listing) -> (BTreeMap<usize, (Header, Duration)>, u64) {
        let (mut found, mut unreadable) = (BTreeMap::new(), 0);
        // The last key is of another operation.
        for key in 0..KEYS - 1 {
            let Some(kept) = self.kept(key) else { continue };
            match &kept.value {
                Err(_) => unreadable += 1,
                Ok(entry) if entry.passes(listing, self.now) => {
                    found.insert(key, (entry.header, kept.ends - self.now));
                }
                Ok(_) => {}
            }
        }
        (found, unreadable)
    }
}

/// Whether `journal` is `before` with the entry of this claim's lapse.
pub(super) fn adds_lapsed(journal: &Journal, before: &Journal, claim: &Header) -> bool {
    let Some(added) = journal.as_bytes().strip_prefix(&before.as_bytes()[..]) else {
        return false;
    };
    let added = Journal::new(added.to_vec().into()).recorded_attempts();
    matches!(&added[..], [attempt] if attempt.owner == claim.owner
        && attempt.fence == claim.fence
        && attempt.number == claim.attempts
        && attempt.end == AttemptEnd::Lapsed
        && attempt.instance.is_empty())
}

/// Whether it is the header of a claim, which may have lapsed.
pub(super) fn is_claim(header: &Header) -> bool {
    matches!(
        header.state,
        State::Pending { .. } | State::Reconciling { .. }
    )
}
