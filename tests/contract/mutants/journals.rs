//! Journals of a store with a flaw.

use bytes::Bytes;
use idem_runtime::store::{
    self as rules, AppendReply, HEADER, Header, Journal, JournalKind, Owner, Record, RecordKey,
    ReleaseReply, Remains, State,
};

use crate::flaw::Flaw;
use crate::store::{Found, Inner, current};

/// The bytes of a header, with the journal of the record that it replaces.
pub(crate) fn rewritten(header: &Header, journal: &Journal) -> Bytes {
    [&header.encode()[..], journal.as_bytes()].concat().into()
}

/// A record of this header, and the rest of those bytes.
pub(crate) fn behind(header: &Header, record: &[u8]) -> Record {
    let bytes = [&header.encode()[..], &record[HEADER..]].concat();
    Record::decode(bytes.into()).expect("a header comes first")
}

/// The journal without its labels.
pub(crate) fn without_labels(journal: &Journal) -> Journal {
    let (mut kept, mut rest) = (Vec::new(), &journal.as_bytes()[..]);
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = 4 + u32::from_be_bytes(*length) as usize;
        let Some((entry, next)) = rest.split_at_checked(length) else {
            break;
        };
        if behind.first() != Some(&b'k') {
            kept.extend(entry);
        }
        rest = next;
    }
    kept.extend(rest);
    Journal::new(kept.into())
}

impl Inner {
    /// The bytes of a record that ends a claim, with this header; `brought` are those of the operation.
    pub(crate) fn ended(&self, header: &Header, written: &Record, brought: &[u8]) -> Vec<u8> {
        let mut header = *header;
        let body = if self.is(Flaw::EndsWithTheirOwnJournals) {
            header.journal = Header::decode(brought).map_or(JournalKind::None, |own| own.journal);
            &brought[HEADER..]
        } else {
            &written.as_bytes()[HEADER..]
        };
        [&header.encode()[..], body].concat()
    }

    /// The journal of the record that an operation replaces.
    pub(crate) fn journal_of(&self, found: &Found, forgets: Flaw) -> Journal {
        match found {
            Some((record, _)) if !self.is(forgets) => record.journal(),
            _ => Journal::default(),
        }
    }

    pub(crate) fn release_with_journal(
        &self,
        key: &RecordKey,
        owner: Owner,
        remains: Remains,
        (journal, seen): (&Journal, Option<&Journal>),
    ) -> ReleaseReply {
        let before = self.look(key);
        if let (Some(seen), Ok(Some((record, _)))) = (seen, &before)
            && record.header.state != State::Released
            && record.journal() != *seen
            && !self.is(Flaw::OperatorsReleaseWhatTheyHaveNotSeen)
        {
            return ReleaseReply::Superseded;
        }
        let reply = self.release(key, owner, remains);
        let writes = match (&reply, self.flaw) {
            (_, Flaw::ReleasesKeepOldJournals) => false,
            (ReleaseReply::Superseded, Flaw::ReleasesWriteJournalsForAnybody) => true,
            // Sent again, it has no further effect.
            (ReleaseReply::Released, _) => {
                matches!(before, Ok(Some((record, _))) if record.header.state != State::Released)
            }
            _ => false,
        };
        if writes && let Ok(Some((record, left))) = self.look(key) {
            let mut header = record.header;
            header.journal = journal.kind();
            self.put(key, rewritten(&header, journal), left);
        }
        reply
    }

    pub(crate) fn append(
        &self,
        key: &RecordKey,
        claim: &Header,
        journal: &Journal,
        known: usize,
    ) -> AppendReply {
        let mut found = match self.look(key) {
            Ok(found) => found,
            Err(error) => return AppendReply::Unreadable(error),
        };
        match (self.flaw, &mut found) {
            (Flaw::AppendsForAnybody, Some((record, _))) => record.header.owner = claim.owner,
            (Flaw::AppendsToWhatHasEnded, Some((record, _)))
                if record.header.owner == claim.owner =>
            {
                record.header.state = claim.state;
            }
            (Flaw::ForgetsLostJournals, None) => return AppendReply::Lost,
            _ => {}
        }
        let left = found.as_ref().map(|(_, left)| *left);
        let (reply, write) = rules::append(current(&found), claim, journal);
        let Some((header, written)) = write else {
            return reply;
        };
        let there = self.journal_of(&found, Flaw::None);
        let tail = &journal.as_bytes()[known.min(journal.as_bytes().len())..];
        let bytes = match self.flaw {
            Flaw::AppendsAgain => [&there.as_bytes()[..], tail].concat(),
            Flaw::CutsJournalsByLateAppends => journal.as_bytes().to_vec(),
            Flaw::WritesLostJournalsInPart if found.is_none() => tail.to_vec(),
            Flaw::CutsLongJournals => {
                written.as_bytes()[..written.as_bytes().len().min(8 << 10)].to_vec()
            }
            _ => written.as_bytes().to_vec(),
        };
        let life = match (self.flaw, left) {
            (Flaw::AppendsWithoutRenewal, Some(left)) => left,
            _ => header.retain,
        };
        self.put(key, rewritten(&header, &Journal::new(bytes.into())), life);
        reply
    }
}
