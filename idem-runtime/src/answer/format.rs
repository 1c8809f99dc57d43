//! How answers are laid out in records.
//!
//! A record says by itself how it is to be read, so that versions and settings can meet in one store
//! while they are deployed. After the header:
//!
//! ```text
//!  0     below 0x20: a tag, the sum of
//!            1  MessagePack, else JSON
//!            2  compressed
//!            4  encrypted
//!        else: JSON as it is, from this byte on
//!
//!        encrypted                         not encrypted
//!  1–4   id of the key, big-endian         1–    content
//!  5–28  nonce
//! 29–    content, encrypted with
//!        XChaCha20-Poly1305, then 16
//!        bytes that authenticate it
//! ```
//! The content is the serialized value; compressed, it is one zstd frame that says how long it is.
//! No JSON starts below 0x20 unless with a tab or a line break, which serializers do not write, and
//! which are no tags of this version. What is encrypted is bound to the digest of the record's key,
//! to its state byte (`D` or `E`), to the tag and to the key's id.

use std::borrow::Cow;

use super::sink::Body;
use super::{Encoded, Undecodable, Unencodable};
use crate::key::KeyDigest;
use crate::record::{HEADER, OutcomeKind, Record, State};

#[cfg(feature = "zstd")]
use super::compression;
#[cfg(feature = "encryption")]
use super::encryption::{Bound, EncryptionKeys, key_id};

const TAGS: u8 = 0x20;
const MESSAGE_PACK: u8 = 1;
const COMPRESSED: u8 = 2;
const ENCRYPTED: u8 = 4;

/// To how much an answer may decompress where `max_value_bytes` is less: another process may have
/// written it with a higher limit.
#[cfg(feature = "zstd")]
const EXPANDED: usize = 8 << 20;

/// How answers are serialized. Each record says which it is, and all are read, whatever is set here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnswerFormat {
    /// JSON: text that an operator can read in the store. It does not hold everything: `f64::NAN` is
    /// written as `null` and does not come back, and keys of maps are strings or numbers.
    #[default]
    Json,
    /// `MessagePack`, a binary format, with the names of fields as in JSON, so that fields may be added
    /// with `#[serde(default)]`. Smaller than JSON, most of all where there are numbers; holds
    /// `NAN`, and maps with any keys. Needs the feature `msgpack`.
    #[cfg(feature = "msgpack")]
    MessagePack,
}

impl AnswerFormat {
    pub(super) fn tag(self) -> Option<u8> {
        match self {
            Self::Json => None,
            #[cfg(feature = "msgpack")]
            Self::MessagePack => Some(MESSAGE_PACK),
        }
    }

    #[cfg_attr(
        feature = "msgpack",
        allow(clippy::unnecessary_wraps, reason = "without the feature it fails")
    )]
    fn tagged(tag: u8) -> Result<Self, Undecodable> {
        if tag & MESSAGE_PACK == 0 {
            return Ok(Self::Json);
        }
        #[cfg(feature = "msgpack")]
        return Ok(Self::MessagePack);
        #[cfg(not(feature = "msgpack"))]
        return Err(Undecodable::Feature { name: "msgpack" });
    }
}

/// How an engine writes answers, and which it reads.
#[derive(Clone, Debug)]
pub struct Format {
    pub(crate) write: AnswerFormat,
    /// The longest answer, both as it is serialized and as it is stored.
    pub(crate) max_value_bytes: usize,
    #[cfg(feature = "zstd")]
    pub(crate) compress_above: Option<usize>,
    #[cfg(feature = "encryption")]
    pub(crate) keys: Option<EncryptionKeys>,
    #[cfg(feature = "encryption")]
    pub(crate) require_encrypted: bool,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            write: AnswerFormat::Json,
            max_value_bytes: 256 << 10,
            #[cfg(feature = "zstd")]
            compress_above: None,
            #[cfg(feature = "encryption")]
            keys: None,
            #[cfg(feature = "encryption")]
            require_encrypted: false,
        }
    }
}

impl Format {
    /// What is wrong with these settings.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.max_value_bytes > 512 << 20 {
            return Err("`max_value_bytes` must be at most 512 MiB".to_owned());
        }
        #[cfg(feature = "encryption")]
        match &self.keys {
            Some(keys) => {
                if let Some(id) = keys.ambiguous() {
                    return Err(format!("`encrypt`: two keys have the id {id}"));
                }
            }
            None if self.require_encrypted => {
                return Err("`require_encrypted` needs the keys of `encrypt`".to_owned());
            }
            None => {}
        }
        Ok(())
    }

    /// The last step before an answer is stored under this key: compressed and encrypted, as the
    /// engine is set. What does not fit any more becomes a tombstone.
    pub(crate) fn seal(&self, key: &KeyDigest, encoded: Encoded) -> Encoded {
        match encoded {
            Encoded::Store {
                outcome: outcome @ (OutcomeKind::Value | OutcomeKind::Error),
                schema,
                record,
                lost,
            } => match self.sealed(key, outcome, record) {
                Ok(record) => Encoded::Store {
                    outcome,
                    schema,
                    record,
                    lost,
                },
                Err(error) => Encoded::empty(OutcomeKind::Tombstone, Some(error)),
            },
            without_answer => without_answer,
        }
    }

    fn sealed(
        &self,
        key: &KeyDigest,
        outcome: OutcomeKind,
        record: Vec<u8>,
    ) -> Result<Vec<u8>, Unencodable> {
        let record = self.encrypted(key, outcome, self.compressed(record))?;
        let max_bytes = self.max_value_bytes;
        if record.len() > HEADER + max_bytes {
            return Err(Unencodable::TooLarge { max_bytes });
        }
        Ok(record)
    }

    #[cfg(feature = "zstd")]
    fn compressed(&self, record: Vec<u8>) -> Vec<u8> {
        let body = &record[HEADER..];
        let (tag, content) = split(body);
        if self
            .compress_above
            .is_none_or(|bytes| content.len() <= bytes)
        {
            return record;
        }
        match compression::compress(content) {
            Some(frame) if frame.len() + 1 < body.len() => {
                let mut record = Vec::with_capacity(HEADER + 1 + frame.len());
                record.resize(HEADER, 0);
                record.push(tag.unwrap_or(0) | COMPRESSED);
                record.extend(frame);
                record
            }
            _ => record,
        }
    }

    #[cfg(not(feature = "zstd"))]
    fn compressed(&self, record: Vec<u8>) -> Vec<u8> {
        record
    }

    #[cfg(feature = "encryption")]
    fn encrypted(
        &self,
        digest: &KeyDigest,
        outcome: OutcomeKind,
        record: Vec<u8>,
    ) -> Result<Vec<u8>, Unencodable> {
        let Some(keys) = &self.keys else {
            return Ok(record);
        };
        let (tag, content) = split(&record[HEADER..]);
        let bound = Bound {
            digest,
            outcome,
            tag: tag.unwrap_or(0) | ENCRYPTED,
        };
        keys.seal(&bound, content)
    }

    #[cfg(not(feature = "encryption"))]
    fn encrypted(
        &self,
        _: &KeyDigest,
        _: OutcomeKind,
        record: Vec<u8>,
    ) -> Result<Vec<u8>, Unencodable> {
        Ok(record)
    }

    /// The serialized value of a record that stands under this key.
    pub(crate) fn open<'a>(
        &self,
        key: &KeyDigest,
        record: &'a Record,
    ) -> Result<Body<'a>, Undecodable> {
        let State::Done { outcome, .. } = record.header.state else {
            return Err(Undecodable::Mistyped { at: 0 });
        };
        let (tag, content) = split(record.body());
        let known = MESSAGE_PACK | COMPRESSED | ENCRYPTED;
        let tag = match tag {
            Some(tag) if tag == 0 || tag & !known != 0 => return Err(Undecodable::Format { tag }),
            tag => tag.unwrap_or(0),
        };
        let format = AnswerFormat::tagged(tag)?;
        let mut bytes = Cow::Borrowed(content);
        if tag & ENCRYPTED != 0 {
            bytes = Cow::Owned(self.decrypted(key, outcome, tag, &bytes)?);
        } else {
            self.accept_plain()?;
        }
        if tag & COMPRESSED != 0 {
            bytes = Cow::Owned(self.expanded(&bytes)?);
        }
        Ok(Body { format, bytes })
    }

    #[cfg(feature = "encryption")]
    fn accept_plain(&self) -> Result<(), Undecodable> {
        if self.require_encrypted {
            return Err(Undecodable::Plain);
        }
        Ok(())
    }

    #[cfg(not(feature = "encryption"))]
    fn accept_plain(&self) -> Result<(), Undecodable> {
        Ok(())
    }

    #[cfg(feature = "encryption")]
    fn decrypted(
        &self,
        digest: &KeyDigest,
        outcome: OutcomeKind,
        tag: u8,
        sealed: &[u8],
    ) -> Result<Vec<u8>, Undecodable> {
        let bound = Bound {
            digest,
            outcome,
            tag,
        };
        match &self.keys {
            Some(keys) => keys.open(&bound, sealed),
            None => Err(Undecodable::KeyMissing {
                id: key_id(sealed)?.0,
            }),
        }
    }

    #[cfg(not(feature = "encryption"))]
    fn decrypted(
        &self,
        _: &KeyDigest,
        _: OutcomeKind,
        _: u8,
        _: &[u8],
    ) -> Result<Vec<u8>, Undecodable> {
        Err(Undecodable::Feature { name: "encryption" })
    }

    #[cfg(feature = "zstd")]
    fn expanded(&self, frame: &[u8]) -> Result<Vec<u8>, Undecodable> {
        compression::expand(frame, self.max_value_bytes.max(EXPANDED))
    }

    #[cfg(not(feature = "zstd"))]
    fn expanded(&self, _: &[u8]) -> Result<Vec<u8>, Undecodable> {
        Err(Undecodable::Feature { name: "zstd" })
    }
}

/// The tag of a body, if it has one, and what follows.
fn split(body: &[u8]) -> (Option<u8>, &[u8]) {
    match body.split_first() {
        Some((tag, content)) if *tag < TAGS => (Some(*tag), content),
        _ => (None, body),
    }
}
