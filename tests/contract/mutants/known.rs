//! The fields of a caller's claim, and the records that a store knows without a query.

use std::sync::PoisonError;
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::store::{
    CompleteReply, Header, OutcomeKind, Record, RecordKey, State, StoreError,
};
use idem_runtime::{fingerprint::Fingerprint, key::KeyDigest};

use crate::flaw::Flaw;
use crate::store::Inner;

fn is_final(record: &Record) -> bool {
    match record.header.state {
        State::Done { outcome, .. } => outcome != OutcomeKind::Unknown,
        _ => false,
    }
}

impl Inner {
    pub(crate) fn complete_claim(
        &self,
        key: &RecordKey,
        claim: &Header,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        let Ok(done) = Header::decode(record) else {
            return self.complete(key, record);
        };
        let stands = self.look(key).ok().flatten();
        let as_said = stands.is_some_and(|(there, _)| there.header == *claim);
        match self.flaw {
            Flaw::CompletesByWordAlone if claim.owner == done.owner => {
                self.put(key, record.clone(), done.retain);
                Ok(CompleteReply::Stored { late: false })
            }
            Flaw::RefusesClaimsNotAsSaid if !as_said => Ok(CompleteReply::Superseded {
                lease_left: Duration::ZERO,
            }),
            Flaw::KeepsAnswersByWordLikeClaims if as_said => {
                let left = self.bytes(key).map(|(_, left)| left);
                self.put(key, record.clone(), left.unwrap_or(done.retain));
                Ok(CompleteReply::Stored { late: false })
            }
            _ => self.complete(key, record),
        }
    }

    /// The store has answered with this record.
    pub(crate) fn know(&self, key: &RecordKey, record: &Record) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key.clone(), record.clone());
    }

    /// The record of a key, expired or not.
    fn ever(&self, key: &RecordKey) -> Option<Record> {
        let (bytes, _) = self.lock().get(&self.name(key))?.clone();
        Record::decode(bytes).ok()
    }

    pub(crate) fn at_hand(
        &self,
        key: &RecordKey,
        asked: Fingerprint,
    ) -> Option<(Record, Duration)> {
        let sound = || {
            let (record, left) = self.look(key).ok()??;
            let is_asked = record.header.fingerprint.matches(asked);
            (is_final(&record) && is_asked).then_some((record, left))
        };
        match self.flaw {
            Flaw::ShowsWhatWasTakenBack => {
                let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                let known = known.get(key).cloned();
                known.map(|record| (record, Duration::ZERO))
            }
            Flaw::ShowsAnswersAfterTheirLife => {
                let record = self.ever(key).filter(is_final)?;
                let left = self.bytes(key).map_or(Duration::ZERO, |(_, left)| left);
                record
                    .header
                    .fingerprint
                    .matches(asked)
                    .then_some((record, left))
            }
            Flaw::ShowsAnswersToOtherRequests => {
                self.look(key).ok()?.filter(|(record, _)| is_final(record))
            }
            Flaw::ShowsWhatIsNotFinal => {
                let found = self.look(key).ok()?;
                found.filter(|(record, _)| record.header.fingerprint.matches(asked))
            }
            Flaw::ShowsAnswersOfOtherKeys => {
                // That of the suite's cases.
                let digest = KeyDigest::from_bytes([0xd1; 32]);
                let prefix = key.prefix().into();
                let other = RecordKey::new(prefix, key.operation().clone(), digest);
                let found = self.look(&other).ok()??;
                (is_final(&found.0) && found.0.header.fingerprint.matches(asked)).then_some(found)
            }
            _ => sound(),
        }
    }
}
