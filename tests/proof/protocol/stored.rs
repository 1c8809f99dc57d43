//! The stored record of the model.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::store::author::{HEADER, Header, JournalKind, Record, State};

use crate::journal::Log;

pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// The remaining life of a record when its lease is over.
const LAPSED: Duration = Duration::from_secs(9);
pub(crate) const RETAIN: Duration = Duration::from_secs(10);

/// A stored record. Time is this much: the lease of a claim is over or not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    encoded: [u8; HEADER],
    /// Decoded from `encoded` once: the steps of each state read it often.
    header: Header,
    /// The body of the record; zero for none.
    answer: u8,
    /// The steps of its attempts.
    log: Log,
    lapsed: bool,
}

impl Hash for Kept {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.encoded, self.answer, self.log, self.lapsed).hash(hasher);
    }
}

impl Kept {
    pub(crate) fn header(&self) -> Header {
        self.header
    }

    /// The owner byte.
    pub(crate) fn owner(&self) -> u8 {
        self.header().owner.as_bytes()[0]
    }

    /// Whether the record is a claim whose lease is not over.
    pub(crate) fn is_held(&self) -> bool {
        !self.header().lapsed(self.left())
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.header().is_unknown(self.left())
    }

    pub(crate) fn is_released(&self) -> bool {
        self.header().state == State::Released
    }

    pub(crate) fn fence(&self) -> u8 {
        u8::try_from(self.header().fence.get()).expect("few claims are made")
    }

    /// Whether it is a release of which nothing remains.
    pub(crate) fn is_bare(&self) -> bool {
        let header = self.header();
        self.is_released() && header.attempts == 0 && header.fingerprint.is_none()
    }

    pub(crate) fn is_reconciling(&self) -> bool {
        matches!(self.header().state, State::Reconciling { .. })
    }

    /// Whether it is a claim, held or lapsed.
    pub(crate) fn is_a_claim(&self) -> bool {
        matches!(self.header().state, State::Pending { .. }) || self.is_reconciling()
    }

    /// The answer, if the key has one.
    pub(crate) fn answer(&self) -> Option<u8> {
        (self.answer != 0).then_some(self.answer)
    }

    pub(crate) fn log(&self) -> Log {
        self.log
    }

    /// The same with another journal.
    pub(crate) fn with(&self, log: Log) -> Self {
        let mut header = self.header;
        header.journal = if log.is_empty() {
            JournalKind::None
        } else {
            JournalKind::Steps
        };
        Self {
            lapsed: self.lapsed,
            ..Self::write(&header, self.answer, log)
        }
    }

    /// The claim is not renewed in time.
    pub(crate) fn lapse(&mut self) {
        self.lapsed = true;
    }

    pub(crate) fn left(&self) -> Duration {
        if self.lapsed { LAPSED } else { RETAIN }
    }

    pub(crate) fn record(&self) -> Record {
        let mut bytes = self.encoded.to_vec();
        bytes.extend(self.answer());
        bytes.extend(self.log.bytes());
        Record::decode(Bytes::from(bytes)).expect("only records are written")
    }

    /// A record that is written now.
    pub(crate) fn of(record: &Record) -> Self {
        let answer = record.body().first().copied().unwrap_or(0);
        Self::write(&record.header, answer, Log::read(&record.journal()))
    }

    /// The same, of its parts. It has the journal if the header announces one.
    pub(crate) fn write(header: &Header, answer: u8, log: Log) -> Self {
        let encoded = header.encode();
        Self {
            encoded,
            header: Header::decode(&encoded).expect("only headers are written"),
            answer,
            log: if header.journal == JournalKind::Steps {
                log
            } else {
                Log::default()
            },
            lapsed: false,
        }
    }
}
