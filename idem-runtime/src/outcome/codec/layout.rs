//! The layout of answers in records, after the header of `record/header.rs`.
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
//!               `http/wire.rs`, which states their version
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

use super::failure::Undecodable;

const TAGS: u8 = 0x20;
pub(super) const MESSAGE_PACK: u8 = 1;
pub(super) const COMPRESSED: u8 = 2;
pub(super) const ENCRYPTED: u8 = 4;
/// The tag of an answer that its type encodes itself.
pub(super) const OWN: u8 = 8;
pub(super) const KNOWN: u8 = MESSAGE_PACK | COMPRESSED | ENCRYPTED | OWN;

/// Serialization format of answers. Each record names its format, and all are read, whatever is set here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AnswerFormat {
    /// JSON: text that an operator can read in the store. It does not represent everything: numbers are finite, and
    /// keys of maps are strings or numbers. An answer that holds another one is not stored.
    #[default]
    Json,
    /// `MessagePack`: binary, with named fields as in JSON.
    ///
    /// Smaller than JSON, most of all for numbers; represents `NAN`, and maps with any keys. Needs the feature
    /// `msgpack`.
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
    pub(super) fn tagged(tag: u8) -> Result<Self, Undecodable> {
        if tag & MESSAGE_PACK == 0 {
            return Ok(Self::Json);
        }
        #[cfg(feature = "msgpack")]
        return Ok(Self::MessagePack);
        #[cfg(not(feature = "msgpack"))]
        return Err(Undecodable::Feature { name: "msgpack" });
    }
}

/// The layout of a record's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layout {
    /// Serialized by serde.
    Serialized(AnswerFormat),
    /// Encoded by its own type.
    Own,
}

pub(crate) fn is_encrypted(body: &[u8]) -> bool {
    split(body).0.is_some_and(|tag| tag & ENCRYPTED != 0)
}

/// Splits a body into its tag, if any, and content.
pub(super) fn split(body: &[u8]) -> (Option<u8>, &[u8]) {
    match body.split_first() {
        Some((tag, content)) if *tag < TAGS => (Some(*tag), content),
        _ => (None, body),
    }
}
