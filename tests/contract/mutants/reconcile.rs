//! The flaws of reconciles and of resolutions.

use std::time::Duration;

use bytes::Bytes;
use idem_runtime::store::{
    self as rules, ClaimReply, ClaimRequest, CompleteReply, Fence, Header, Needs, OutcomeKind,
    Owner, Record, RecordKey, ReleaseReply, Remains, RenewReply, ResolveReply, State, StoreError,
    UNDECIDED,
};

use crate::flaw::Flaw;
use crate::journals::behind;
use crate::store::{Inner, MS, current};

fn is_unknown(state: State) -> bool {
    matches!(
        state,
        State::Done {
            outcome: OutcomeKind::Unknown,
            ..
        }
    )
}

fn is_reconciling(state: State) -> bool {
    matches!(state, State::Reconciling { .. })
}

impl Inner {
    /// The flawed view of the record that a claim finds and of the claim; or its own answer.
    pub(crate) fn misread_for_claim(
        &self,
        header: &mut Header,
        left: &mut Duration,
        request: &mut ClaimRequest,
    ) -> Option<ClaimReply> {
        let mine = header.owner == request.owner;
        let (state, attempts) = (header.state, header.attempts);
        let somebody = Owner::from_bytes([0xff; 16]);
        let done = matches!(state, State::Done { .. });
        let found_out = mine && is_reconciling(state);
        match self.flaw {
            Flaw::GrantsToWhoGaveBack if state == State::Released => header.owner = somebody,
            Flaw::RefusesAReconciliationSentAgain if found_out && request.reconciles => {
                return Some(ClaimReply::Running { lease_left: MS });
            }
            Flaw::LooksIntoItsOwnUnknownOutcome if is_unknown(state) => header.owner = somebody,
            Flaw::RunsWhatWasFoundOut if request.reconciles && done && !is_unknown(state) => {
                header.state = State::Released;
            }
            Flaw::LooksIntoLiveClaims if request.reconciles && !mine => *left = Duration::ZERO,
            Flaw::StartsWithoutLimit if found_out => request.max_attempts = None,
            Flaw::ExhaustsReconciliations
                if request.reconciles
                    && !mine
                    && header.lapsed(*left)
                    && request
                        .max_attempts
                        .is_some_and(|max| attempts >= max.get()) =>
            {
                return Some(ClaimReply::Exhausted { attempts });
            }
            Flaw::RunsWhatIsUnknown if is_unknown(state) && !request.reconciles => {
                (header.state, header.owner) = (State::Released, somebody);
            }
            Flaw::RunsWhatWasToBeFoundOut
                if is_reconciling(state) && !request.reconciles && header.lapsed(*left) =>
            {
                header.state = State::Released;
            }
            Flaw::AsksNobodyToFindOut => request.reconciles = false,
            Flaw::StartsOnStaleVerdicts if request.needs == Needs::Verdict => {
                request.needs = Needs::Nothing;
            }
            Flaw::AsksNobodyAboutLapsedClaims if matches!(state, State::Pending { .. }) => {
                request.reconciles = false;
            }
            _ => {}
        }
        None
    }

    /// The flawed write of a claim that is granted on top of this record.
    pub(crate) fn miswrite_claim(
        &self,
        before: &Header,
        request: &ClaimRequest,
        granted: &mut ClaimReply,
        header: &mut Header,
    ) {
        let mine = before.owner == request.owner;
        let started = mine && is_reconciling(before.state) && !is_reconciling(header.state);
        let asked = !mine && is_reconciling(header.state);
        match self.flaw {
            Flaw::LooksIntoUnderTheOldFence if asked => header.fence = before.fence,
            Flaw::StartsUnderTheOldFence if started => header.fence = before.fence,
            Flaw::CountsReconciliations if asked => header.attempts = before.attempts + 1,
            Flaw::StartsWithoutCounting if started => header.attempts = before.attempts,
            Flaw::ForgetsFingerprintsByReconciling if is_reconciling(header.state) => {
                header.fingerprint = request.fingerprint;
            }
            _ => {}
        }
        match granted {
            ClaimReply::Granted { fence, attempt, .. } => {
                (*fence, *attempt) = (header.fence, header.attempts);
            }
            ClaimReply::Reconcile {
                fence, attempts, ..
            } => {
                (*fence, *attempts) = (header.fence, header.attempts);
            }
            _ => {}
        }
    }

    /// The flawed view of the record that a completion finds; or its own answer.
    pub(crate) fn misread_for_completion(
        &self,
        record: &mut Record,
        left: Duration,
        done: &Header,
    ) -> Option<CompleteReply> {
        let mine = record.header.owner == done.owner;
        match self.flaw {
            Flaw::CompletesReconciliationsOfOthers if is_reconciling(record.header.state) => {
                record.header.owner = done.owner;
            }
            Flaw::KeepsUnknownOverASuccess if is_unknown(record.header.state) && !mine => {
                let record = record.clone();
                return Some(CompleteReply::Adopted { record, left });
            }
            Flaw::ReplacesUnknownByErrors if is_unknown(record.header.state) && !mine => {
                record.header.state = State::Released;
            }
            _ => {}
        }
        None
    }

    /// The flawed view of the record that a release finds; or its own answer.
    pub(crate) fn misread_for_release(
        &self,
        header: &mut Header,
        owner: Owner,
        remains: Remains,
    ) -> Option<ReleaseReply> {
        let mine = header.owner == owner;
        match (self.flaw, header.state) {
            (
                Flaw::GivesBackAReconciliationOnce,
                State::Done {
                    schema: UNDECIDED, ..
                },
            ) => return Some(ReleaseReply::Superseded),
            (Flaw::TakesBackAttemptsOfReconciliations, State::Reconciling { .. })
                if mine && !remains.counts() =>
            {
                header.attempts = header.attempts.saturating_sub(1);
            }
            (Flaw::ReleasesReconciliations, State::Reconciling { lease }) => {
                header.state = State::Pending { lease };
            }
            _ => {}
        }
        None
    }

    /// The flawed view of a renewal; or its own answer.
    pub(crate) fn misread_for_renewal(
        &self,
        found: Option<&Header>,
        claim: &mut Header,
    ) -> Option<RenewReply> {
        match (self.flaw, found) {
            (Flaw::RenewsNoReconciliation, Some(header)) if is_reconciling(header.state) => {
                return Some(RenewReply::Lost);
            }
            (Flaw::WritesLostReconciliationsAsClaims, None) => {
                if let State::Reconciling { lease } = claim.state {
                    claim.state = State::Pending { lease };
                }
            }
            _ => {}
        }
        None
    }

    pub(crate) fn resolve(
        &self,
        key: &RecordKey,
        (seen, mut journal): (&Header, Option<&Journal>),
        record: &Bytes,
    ) -> Result<ResolveReply, StoreError> {
        let new = match Header::decode(record) {
            Ok(new) => new,
            Err(error) => return Ok(ResolveReply::Unreadable(error)),
        };
        let mut found = match self.look(key) {
            Ok(found) => found,
            Err(_) if self.is(Flaw::ResolvesTheUnreadable) => {
                self.put(key, record.clone(), new.retain);
                return Ok(ResolveReply::Resolved);
            }
            Err(error) => return Ok(ResolveReply::Unreadable(error)),
        };
        let mut seen = *seen;
        if self.is(Flaw::OperatorsResolveWhatTheyHaveNotSeen) {
            journal = None;
        }
        if let Some((there, left)) = &mut found {
            let header = &there.header;
            match self.flaw {
                Flaw::RefusesAResolutionSentAgain if header.owner == new.owner => {
                    return Ok(ResolveReply::Changed);
                }
                Flaw::ResolvesWhatWasNotSeen => seen = *header,
                Flaw::ComparesOwnersOfResolutionsOnly if seen.owner == header.owner => {
                    seen = *header;
                }
                Flaw::ResolvesWhatIsHeld => *left = Duration::ZERO,
                _ => {}
            }
        }
        let (reply, write) = rules::resolve(current(&found), &seen, journal, &behind(&new, record));
        if let (Some(written), Some((there, _))) = (write, &found) {
            let mut header = written.header;
            let before = &there.header;
            let mut life = header.retain;
            match self.flaw {
                Flaw::RefusesResolutionsWhenFull => self.room()?,
                Flaw::KeepsResolutionsLikeClaims => life = before.retain,
                Flaw::LowersFencesByResolutions => header.fence = Fence::default(),
                Flaw::KeepsTypesOverAReset if new.state == State::Released => {
                    header.types = before.types;
                }
                Flaw::KeepsAttemptsOverAReset => header.attempts = before.attempts,
                Flaw::ForgetsAttemptsByResolutions => header.attempts = 0,
                Flaw::ForgetsFingerprintsByResolutions => header.fingerprint = new.fingerprint,
                _ => {}
            }
            let bytes = self.ended(&header, &written, record);
            self.put(key, bytes.into(), life);
        }
        Ok(reply)
    }
}
