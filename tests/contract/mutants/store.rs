//! A store that is right but for one flaw.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::clock::{Clock, ManualClock};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{
    self as rules, AnswerTypes, ClaimReply, ClaimRequest, CompleteReply, Current, Fence, HEADER,
    Header, Journal, JournalKind, Listener, Needs, Owner, ReadReply, Record, RecordKey,
    ReleaseReply, Remains, RenewReply, State, StoreError, StoreErrorKind, Unreadable,
};

use crate::flaw::Flaw;
use crate::journals::{behind, rewritten, without_labels};

pub(crate) const MS: Duration = Duration::from_millis(1);
const YEARS: Duration = Duration::from_hours(24 * 365 * 100);

pub(crate) type Name = (String, String, Vec<u8>);
/// A listener with its prefix.
type Listening = (Arc<str>, Weak<dyn Listener>);

/// Clones share the records.
#[derive(Clone)]
pub(crate) struct Flawed(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) flaw: Flaw,
    pub(crate) clock: ManualClock,
    pub(crate) turn: Mutex<()>,
    /// The records that it has answered with.
    pub(crate) known: Mutex<HashMap<RecordKey, Record>>,
    pub(crate) listeners: Mutex<Vec<Listening>>,
    most: usize,
    records: Mutex<HashMap<Name, (Bytes, Duration)>>,
}

/// The record of a key, and its remaining life.
pub(crate) type Found = Option<(Record, Duration)>;

impl fmt::Debug for Flawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Flawed").field(&self.0.flaw).finish()
    }
}

impl Flawed {
    pub(crate) fn new(flaw: Flaw) -> Self {
        Self::of_size(flaw, usize::MAX)
    }

    pub(crate) fn of_size(flaw: Flaw, most: usize) -> Self {
        Self(Arc::new(Inner {
            flaw,
            clock: ManualClock::new(),
            turn: Mutex::default(),
            known: Mutex::default(),
            listeners: Mutex::default(),
            most,
            records: Mutex::default(),
        }))
    }
}

pub(crate) fn current(found: &Found) -> Option<Current<'_>> {
    found
        .as_ref()
        .map(|(record, left)| Current::new(record, *left))
}

impl Inner {
    pub(crate) fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<Name, (Bytes, Duration)>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn name(&self, key: &RecordKey) -> Name {
        let (mut prefix, mut operation) = (key.prefix(), key.operation().as_str());
        let mut digest = &key.digest().as_bytes()[..];
        match self.flaw {
            Flaw::IgnoresPrefixes => prefix = "",
            Flaw::IgnoresOperations => operation = "",
            Flaw::CutsDigests => digest = &digest[..31],
            _ => {}
        }
        (prefix.to_owned(), operation.to_owned(), digest.to_vec())
    }

    pub(crate) fn bytes(&self, key: &RecordKey) -> Option<(Bytes, Duration)> {
        let now = self.clock.now();
        let extra = match self.flaw {
            Flaw::KeepsForEver => YEARS,
            Flaw::KeepsAMillisecondLonger => MS,
            _ => Duration::ZERO,
        };
        let records = self.lock();
        let (bytes, expires) = records.get(&self.name(key))?;
        let early = match self.flaw {
            Flaw::ForgetsAMillisecondEarly => MS,
            _ => Duration::ZERO,
        };
        let left = expires.saturating_sub(now);
        (*expires + extra > now + early).then(|| (bytes.clone(), left))
    }

    pub(crate) fn look(&self, key: &RecordKey) -> Result<Found, Unreadable> {
        let Some((bytes, left)) = self.bytes(key) else {
            return Ok(None);
        };
        match Record::decode(bytes) {
            Ok(record) => Ok(Some((record, left))),
            Err(_) if self.is(Flaw::OverwritesTheUnreadable) => Ok(None),
            Err(Unreadable::Layout { .. }) if self.is(Flaw::OverwritesANewerLayout) => Ok(None),
            Err(error) => {
                if self.is(Flaw::DeletesTheUnreadable) {
                    self.lock().remove(&self.name(key));
                }
                Err(error)
            }
        }
    }

    pub(crate) fn put(&self, key: &RecordKey, bytes: Bytes, life: Duration) {
        let expires = self.clock.now() + life;
        self.lock().insert(self.name(key), (bytes, expires));
    }

    pub(crate) fn room(&self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut records = self.lock();
        if !self.is(Flaw::NeverHasRoomAgain) {
            records.retain(|_, (_, expires)| *expires > now);
        }
        if records.len() < self.most {
            return Ok(());
        }
        if self.is(Flaw::EvictsWhenFull) {
            let oldest = records.iter().min_by_key(|(_, (_, expires))| *expires);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|oldest| records.remove(&oldest));
            return Ok(());
        }
        Err(StoreError::new(StoreErrorKind::Full, "no room"))
    }

    /// Whether a fingerprint is not compared, given the state of the record.
    fn ignores(&self, state: State) -> bool {
        match state {
            State::Pending { .. } => self.is(Flaw::IgnoresFingerprintsWhilePending),
            State::Released => self.is(Flaw::IgnoresFingerprintsOfReleased),
            State::Done { .. } => self.is(Flaw::IgnoresFingerprintsOfAnswers),
            _ => false,
        }
    }

    /// The journal is the one that the record then has.
    fn decide_claim(
        &self,
        mut found: Found,
        asked: &ClaimRequest,
    ) -> (ClaimReply, Option<(Header, Journal)>) {
        let mut request = asked.clone();
        let mut again = false;
        if found.is_none() && self.is(Flaw::BeginsWhatNeedsARecord) && asked.needs == Needs::Record
        {
            request.needs = Needs::Nothing;
        }
        if let Some((record, left)) = &mut found {
            let header = &mut record.header;
            if let Some(reply) = self.misread_for_claim(header, left, &mut request) {
                return (reply, None);
            }
            let pending = matches!(header.state, State::Pending { .. });
            again = pending && header.owner == asked.owner;
            match self.flaw {
                Flaw::CountsAClaimSentAgain if again => header.state = State::Released,
                Flaw::RefusesAClaimSentAgain if again => header.owner = Owner::random(),
                Flaw::RunsWhatIsDone if !pending => header.state = State::Released,
                Flaw::GrantsAMillisecondEarly => *left -= MS,
                Flaw::GrantsAMillisecondLate => *left += MS,
                Flaw::TakesFencesFromTheClock => header.fence = Fence::default(),
                Flaw::CountsNoTakeover if pending && !again => {
                    header.attempts = header.attempts.saturating_sub(1);
                }
                Flaw::NeverExhausts => request.max_attempts = None,
                Flaw::AllowsOneMore => {
                    request.max_attempts = asked.max_attempts.map(|max| max.saturating_add(1));
                }
                Flaw::ExhaustsWhileRunning if pending && !again => {
                    let attempts = header.attempts;
                    if asked.max_attempts.is_some_and(|max| attempts >= max.get()) {
                        return (ClaimReply::Exhausted { attempts }, None);
                    }
                }
                Flaw::ComparesHalfAFingerprint => {
                    let half = |print: Fingerprint| print.as_bytes()[..8].to_vec();
                    if half(header.fingerprint) == half(asked.fingerprint) {
                        request.fingerprint = header.fingerprint;
                    }
                }
                Flaw::IgnoresTypes => request.any_type = true,
                Flaw::RefusesEveryOtherType => request.any_type = false,
                Flaw::ComparesTypesOfErrors
                    if header.state == State::Released && header.types != asked.types =>
                {
                    return (ClaimReply::OtherType, None);
                }
                Flaw::TakesNoneForAnotherRequest if header.fingerprint != asked.fingerprint => {
                    return (ClaimReply::Mismatch, None);
                }
                _ => {}
            }
            if self.ignores(header.state) {
                request.fingerprint = header.fingerprint;
            }
        }
        let now_us = self.clock.calendar_us();
        if self.is(Flaw::ForgetsLapsedAttempts) {
            request.records_attempts = false;
        }
        let (mut reply, write) = rules::claim(current(&found), &request, now_us);
        let journal = write.as_ref().map(Record::journal).unwrap_or_default();
        let mut write = write.map(|record| record.header);
        if let (ClaimReply::Granted { fence, fresh, .. }, Some(header)) = (&mut reply, &mut write) {
            *fresh |= self.is(Flaw::TakesEveryClaimForTheFirst);
            *fresh &= !self.is(Flaw::TakesNoClaimForTheFirst);
            if self.is(Flaw::GivesOneFence) && !again {
                *fence = Fence::new(7);
                header.fence = *fence;
            }
            if self.is(Flaw::ForgetsFingerprintsByNone) {
                header.fingerprint = asked.fingerprint;
            }
            if self.is(Flaw::ForgetsTypesByNone) {
                header.types = asked.types;
            }
            if let (Flaw::KeepsTypesOfTheFirst, Some((record, _))) = (self.flaw, &found) {
                header.types = record.header.types;
            }
        }
        if let (Some((record, _)), Some(header)) = (&found, &mut write) {
            self.miswrite_claim(&record.header, asked, &mut reply, header);
        }
        (reply, write.map(|header| (header, journal)))
    }

    pub(crate) fn claim(
        &self,
        key: &RecordKey,
        found: Found,
        request: &ClaimRequest,
    ) -> Result<ClaimReply, StoreError> {
        let is_new = found.is_none();
        let (reply, write) = self.decide_claim(found, request);
        if let Some((header, mut journal)) = write {
            if self.is(Flaw::ClaimsForgetJournals) {
                journal = Journal::default();
            }
            if self.is(Flaw::ClaimsForgetLabels) {
                journal = without_labels(&journal);
            }
            if is_new {
                self.room()?;
            }
            self.put(key, rewritten(&header, &journal), header.retain);
        }
        Ok(reply)
    }

    pub(crate) fn complete(
        &self,
        key: &RecordKey,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        let done = match Header::decode(record) {
            Ok(done) => done,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let mut found = match self.look(key) {
            Ok(found) => found,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let mut asked = done;
        let before = found.as_ref().map(|(record, _)| record.header);
        if let Some((record, left)) = &mut found {
            if let Some(reply) = self.misread_for_completion(record, *left, &done) {
                return Ok(reply);
            }
            let header = &mut record.header;
            let finished = matches!(header.state, State::Done { .. });
            let mine = header.owner == done.owner;
            match self.flaw {
                Flaw::CompletesForAnybody if !finished => header.owner = done.owner,
                Flaw::RefusesLateAnswers if !mine && !finished => {
                    let lease_left = MS;
                    return Ok(CompleteReply::Superseded { lease_left });
                }
                Flaw::ProlongsAnAnswerSentAgain if finished && mine => {
                    header.state = State::Released;
                }
                Flaw::OverwritesAnswers if finished => header.state = State::Released,
                Flaw::GrantsAMillisecondEarly => *left -= MS,
                Flaw::GrantsAMillisecondLate => *left += MS,
                _ => {}
            }
            if self.ignores(header.state) {
                asked.fingerprint = header.fingerprint;
            }
        }
        if found.is_none() && self.is(Flaw::RefusesAnswersWhenFull) {
            self.room()?;
        }
        let asked = behind(&asked, record);
        let (reply, write) = rules::complete(current(&found), &asked);
        if let Some(written) = write {
            let mut header = written.header;
            if self.is(Flaw::RefusesAnswersWhenFull) {
                self.room()?;
            }
            if let Some(before) = before {
                match self.flaw {
                    Flaw::AnswersForgetAttempts => header.attempts = done.attempts,
                    Flaw::LowersFencesByLateAnswers => header.fence = done.fence,
                    Flaw::ForgetsFingerprintsByNone => header.fingerprint = done.fingerprint,
                    Flaw::AnswersForgetTypes => header.types = done.types,
                    Flaw::KeepsAnswersLikeClaims => header.retain = before.retain,
                    _ => {}
                }
            }
            let mut bytes = self.ended(&header, &written, record);
            match self.flaw {
                Flaw::CutsLargeAnswers => bytes.truncate(8 << 10),
                Flaw::KeepsAnswersAsText => {
                    let body = bytes.split_off(HEADER);
                    bytes.extend(String::from_utf8_lossy(&body).bytes());
                }
                _ => {}
            }
            self.put(key, bytes.into(), header.retain);
        }
        Ok(reply)
    }

    pub(crate) fn release(
        &self,
        key: &RecordKey,
        owner: Owner,
        mut remains: Remains,
    ) -> ReleaseReply {
        let mut found = match self.look(key) {
            Ok(found) => found,
            Err(error) => return ReleaseReply::Unreadable(error),
        };
        let Some((record, left)) = &mut found else {
            return ReleaseReply::Absent;
        };
        let (header, left) = (&mut record.header, *left);
        let types = header.types;
        let reconciling = matches!(header.state, State::Reconciling { .. });
        if let Some(reply) = self.misread_for_release(header, owner, remains) {
            return reply;
        }
        match (self.flaw, header.state) {
            (Flaw::ReleasesForAnybody, State::Pending { .. }) => header.owner = owner,
            (Flaw::TakesBackAnAttemptTwice, State::Released)
            | (Flaw::ReleasesAnswers, State::Done { .. }) => {
                header.state = State::Pending { lease: MS };
            }
            (Flaw::CountsEveryRelease, _) => remains = Remains::Attempt,
            (Flaw::TakesAttemptsForSteps, _) if header.journal == JournalKind::Attempts => {
                header.journal = JournalKind::Steps;
            }
            (Flaw::KeepsEveryRequest, _) => remains = remains.max(Remains::Request),
            (Flaw::FreesRequestsThatStay, _) if remains == Remains::Request => {
                remains = Remains::Nothing;
            }
            _ => {}
        }
        let (reply, write) = rules::release(current(&found), owner, remains);
        if let (Some(mut header), Some((before, _))) = (write, &found) {
            let life = rules::released_life(&before.header, remains);
            if self.is(Flaw::FreesRequestsOfAttempts) && remains == Remains::Nothing {
                header.fingerprint = Fingerprint::NONE;
            }
            match self.flaw {
                Flaw::KeepsTypesOfReleases => header.types = types,
                Flaw::ForgetsTypesOfReleases => header.types = AnswerTypes::UNKNOWN,
                _ => {}
            }
            if self.is(Flaw::FreesRequestsOfJournals) && remains == Remains::Nothing {
                header.fingerprint = Fingerprint::NONE;
            }
            let journal = self.journal_of(&found, Flaw::ReleasesForgetJournals);
            let bytes = rewritten(&header, &journal);
            match self.flaw {
                Flaw::ForgetsOnRelease => drop(self.lock().remove(&self.name(key))),
                Flaw::ProlongsByRelease => self.put(key, bytes, header.retain),
                Flaw::ProlongsReconciliationsByRelease if reconciling => {
                    self.put(key, bytes, header.retain);
                }
                Flaw::KeepsWhatNothingRemainsOf => self.put(key, bytes, left),
                Flaw::ShortensEveryRelease => {
                    self.put(key, bytes, left.min(Duration::from_mins(1)));
                }
                _ => self.put(key, bytes, life.unwrap_or(left)),
            }
        }
        reply
    }

    pub(crate) fn renew(&self, key: &RecordKey, claim: &Header) -> RenewReply {
        let mut found = match self.look(key) {
            Ok(found) => found,
            Err(error) => return RenewReply::Unreadable(error),
        };
        let mut claim = *claim;
        let there = found.as_ref().map(|(record, _)| record.header);
        if let Some(reply) = self.misread_for_renewal(there.as_ref(), &mut claim) {
            return reply;
        }
        match (self.flaw, &mut found) {
            (Flaw::RenewsForAnybody, Some((record, _))) => record.header.owner = claim.owner,
            (Flaw::RenewsWhatIsReleased, Some((record, _)))
                if record.header.state == State::Released =>
            {
                record.header.state = claim.state;
            }
            (Flaw::ForgetsLostClaims, None) => return RenewReply::Lost,
            (Flaw::RenewsWithoutEffect, Some((record, _)))
                if record.header.owner == claim.owner =>
            {
                return RenewReply::Renewed;
            }
            _ => {}
        }
        let (reply, write) = rules::renew(current(&found), &claim);
        if let Some(header) = write {
            let journal = self.journal_of(&found, Flaw::RenewalsForgetJournals);
            self.put(key, rewritten(&header, &journal), header.retain);
        }
        reply
    }

    pub(crate) fn read(&self, key: &RecordKey) -> ReadReply {
        match self.look(key) {
            Ok(None) => ReadReply::Absent,
            Ok(Some((record, left))) => {
                if self.is(Flaw::ProlongsByReading) {
                    let bytes = Bytes::copy_from_slice(record.as_bytes());
                    self.put(key, bytes, record.header.retain);
                }
                ReadReply::Found { record, left }
            }
            Err(error) => ReadReply::Unreadable(error),
        }
    }
}
