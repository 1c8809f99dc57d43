//! The layout of answers in records.
//!
//! A record describes its own layout, so that versions and settings can differ within one store during a deployment.
//! After the header:
//!
//! ```text
//!  0     below 0x20: a tag, the sum of
//!            1  MessagePack, else JSON
//!            2  compressed
//!            4  encrypted
//!            8  bytes that the type lays out itself, neither JSON nor MessagePack: see
//!               `http/wire.rs`, which says of which version they are
//!        else: JSON as it is, from this byte on
//!
//!        encrypted                         not encrypted
//!  1–4   id of the key, big-endian         1–    content
//!  5–28  nonce
//! 29–    content, encrypted with
//!        XChaCha20-Poly1305, then 16
//!        bytes that authenticate it
//! ```
//! The content is the serialized value; compressed, it is one zstd frame that contains its length. No JSON starts below
//! 0x20 except with a tab or a line break, which serializers do not write, and which are no tags of this version.
//!
//! An encrypted answer is bound to its key and to its record's metadata: prefix of the engine, digest of the record's
//! key (which covers operation, scope and key), state byte (`D` or `E`), schema and fingerprint of the header, tag, and
//! id of the encryption key.

use std::borrow::Cow;

use super::compression::{Compression, expand};
use super::encryption::Encryption;
use super::sink::{Body, Layout};
use super::{Encoded, Undecodable, Unencodable};
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::record::{HEADER, OutcomeKind, Record, State};

const TAGS: u8 = 0x20;
const MESSAGE_PACK: u8 = 1;
const COMPRESSED: u8 = 2;
const ENCRYPTED: u8 = 4;
/// The tag of an answer that its type encodes itself.
pub(super) const OWN: u8 = 8;
const KNOWN: u8 = MESSAGE_PACK | COMPRESSED | ENCRYPTED | OWN;

/// Serialization format of answers. Each record names its format, and all are read, whatever is set here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnswerFormat {
    /// JSON: text that an operator can read in the store. It does not represent everything: numbers are finite, and
    /// keys of maps are strings or numbers. An answer that holds another one is not stored.
    #[default]
    Json,
    /// `MessagePack`, a binary format, with the names of fields as in JSON, so that fields may be added with
    /// `#[serde(default)]`. Smaller than JSON, most of all for numbers; represents `NAN`, and maps with any keys. Needs
    /// the feature `msgpack`.
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

/// The answer formats that an engine writes and reads.
#[derive(Clone, Debug)]
pub struct Format {
    pub(crate) write: AnswerFormat,
    /// The longest answer, both serialized and stored.
    pub(crate) max_value_bytes: usize,
    /// The longest answer that the store reads back, whatever its layout.
    pub(crate) max_stored_bytes: usize,
    pub(crate) compression: Compression,
    pub(crate) encryption: Encryption,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            write: AnswerFormat::Json,
            max_value_bytes: 256 << 10,
            max_stored_bytes: usize::MAX,
            compression: Compression::default(),
            encryption: Encryption::default(),
        }
    }
}

/// The metadata that an encrypted answer is bound to; it does not decrypt under any other.
#[cfg_attr(
    not(feature = "encryption"),
    allow(dead_code, reason = "nothing reads it")
)]
pub(super) struct Bound<'a> {
    pub(super) digest: &'a KeyDigest,
    pub(super) fingerprint: Fingerprint,
    pub(super) outcome: OutcomeKind,
    pub(super) schema: u32,
    pub(super) tag: u8,
}

/// The longest answer that a type encodes itself, unless `max_value_bytes` is more.
const MAX_OWN_BYTES: usize = 64 << 20;

impl Format {
    /// The longest answer that a type encodes itself.
    pub(crate) fn max_own_bytes(&self) -> usize {
        MAX_OWN_BYTES
            .max(self.max_value_bytes)
            .min(self.max_stored_bytes)
    }

    /// The same, with a separate copy of the keys, whose reference count is not shared.
    pub(crate) fn apart(&self) -> Self {
        Self {
            encryption: self.encryption.apart(),
            ..self.clone()
        }
    }

    /// Checks these settings for mistakes.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.max_value_bytes > 512 << 20 {
            return Err("`max_value_bytes` must be at most 512 MiB".to_owned());
        }
        self.encryption.check()
    }

    /// Whether answers are encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.encryption.is_on()
    }

    /// Compresses and encrypts an answer for storage under this key, as the engine is set. An answer that exceeds the
    /// limit becomes a tombstone. `asked` is the fingerprint of the call.
    pub(crate) fn seal(&self, key: &KeyDigest, asked: Fingerprint, encoded: Encoded) -> Encoded {
        match encoded {
            Encoded::Store {
                outcome: outcome @ (OutcomeKind::Value | OutcomeKind::Error),
                schema,
                record,
                lost,
            } => match self.sealed((key, asked), (outcome, schema), record) {
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
        Ok(Body { layout, bytes })
    }
}

/// Splits a body into its tag, if it has one, and the content.
fn split(body: &[u8]) -> (Option<u8>, &[u8]) {
    match body.split_first() {
        Some((tag, content)) if *tag < TAGS => (Some(*tag), content),
        _ => (None, body),
    }
}
