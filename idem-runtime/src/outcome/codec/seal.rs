//! Compression and encryption of stored answers.

use std::borrow::Cow;

use super::body::Body;
use super::bound::Bound;
use super::compression::expand;
use super::encoded::{Encoded, EncodedAnswer};
use super::failure::{Undecodable, Unencodable};
use super::format::{Format, MAX_OWN_BYTES};
use super::layout::{AnswerFormat, COMPRESSED, ENCRYPTED, KNOWN, Layout, MESSAGE_PACK, OWN, split};
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::record::{HEADER, OutcomeKind, Record, State};

impl Format {
    /// Compresses and encrypts an answer under this key. An answer that exceeds the limit becomes a tombstone. `asked`
    /// is the fingerprint of the call.
    pub(crate) fn seal(&self, key: &KeyDigest, asked: Fingerprint, encoded: Encoded) -> Encoded {
        match encoded {
            Encoded::Store(answer)
                if matches!(answer.outcome, OutcomeKind::Value | OutcomeKind::Error) =>
            {
                let kind = (answer.outcome, answer.schema);
                match self.sealed((key, asked), kind, answer.record) {
                    Ok(record) => Encoded::Store(EncodedAnswer { record, ..answer }),
                    Err(error) => Encoded::not_stored(kind, error),
                }
            }
            without_answer => without_answer,
        }
    }

    fn sealed(
        &self,
        (digest, fingerprint): (&KeyDigest, Fingerprint),
        (outcome, schema): (OutcomeKind, u32),
        mut record: Vec<u8>,
    ) -> Result<Vec<u8>, Unencodable> {
        let (tag, content) = split(&record[HEADER..]);
        if let Some(frame) = self.compression.compress(content)
            && HEADER + 1 + frame.len() < record.len()
        {
            let tag = tag.unwrap_or(0) | COMPRESSED;
            record.truncate(HEADER);
            record.push(tag);
            record.extend(frame);
        }
        if self.encryption.is_on() {
            let (tag, content) = split(&record[HEADER..]);
            let tag = tag.unwrap_or(0) | ENCRYPTED;
            let bound = Bound {
                digest,
                fingerprint,
                outcome,
                schema,
                tag,
            };
            record = self.encryption.seal(&bound, content)?;
        }
        let max_bytes = match tag {
            // A type that encodes itself has a limit of its own.
            Some(tag) if tag & OWN != 0 => self.max_own_bytes(),
            _ => self.max_value_bytes,
        };
        if record.len() > HEADER + max_bytes {
            return Err(Unencodable::TooLarge { max_bytes });
        }
        Ok(record)
    }

    /// The serialized value of a record that is stored under this key.
    pub(crate) fn open<'a>(
        &self,
        digest: &KeyDigest,
        record: &'a Record,
    ) -> Result<Body<'a>, Undecodable> {
        let State::Done { outcome, schema } = record.header.state else {
            return Err(Undecodable::Mistyped { at: 0 });
        };
        let (tag, content) = split(record.body());
        let tag = match tag {
            None => 0,
            Some(tag) if tag == 0 || tag & !KNOWN != 0 => return Err(Undecodable::Format { tag }),
            Some(tag) if tag & OWN != 0 && tag & MESSAGE_PACK != 0 => {
                return Err(Undecodable::Format { tag });
            }
            Some(tag) => tag,
        };
        let layout = if tag & OWN == 0 {
            Layout::Serialized(AnswerFormat::tagged(tag)?)
        } else {
            Layout::Own
        };
        let mut bytes = Cow::Borrowed(content);
        if tag & ENCRYPTED == 0 {
            self.encryption.accept_plain()?;
        } else {
            let bound = |fingerprint| Bound {
                digest,
                fingerprint,
                outcome,
                schema,
                tag,
            };
            let stored = record.header.fingerprint;
            let opened = self.encryption.open(&bound(stored), &bytes);
            // A call without a fingerprint leaves that of the record in place, and encrypts under no fingerprint.
            let opened = match opened {
                Err(Undecodable::Forged { .. }) if !stored.is_none() => {
                    self.encryption.open(&bound(Fingerprint::NONE), &bytes)
                }
                opened => opened,
            };
            bytes = opened?.into();
        }
        if tag & COMPRESSED != 0 {
            let max_bytes = match layout {
                Layout::Own => self.max_value_bytes.max(MAX_OWN_BYTES),
                Layout::Serialized(_) => self.max_value_bytes,
            };
            bytes = expand(&bytes, max_bytes)?.into();
        }
        Ok(Body {
            layout,
            bytes,
            by_hand: false,
        })
    }
}
