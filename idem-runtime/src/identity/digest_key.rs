//! Keyed digests: a reader of the store, or of a log, learns less of a key and of a request.

use std::fmt;

#[cfg(feature = "digest-key")]
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;

/// The name of a record, and the origin of derived keys. No `Debug`, because the plain digest must not be shown.
#[derive(Clone)]
pub(crate) struct CallName {
    pub(crate) key: RecordKey,
    pub(crate) fingerprint: Fingerprint,
    /// The digest without a secret; `None` if digests are not keyed.
    pub(crate) plain: Option<Box<KeyDigest>>,
}

/// A value that records or logs have as a digest alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepPart {
    /// The name of a step.
    Name,
    /// The input of a step.
    Input,
    /// A key for another party.
    DerivedKey,
}

impl StepPart {
    /// Each is prefix-free, also with `K` and `F` of a call.
    const fn domain(self) -> &'static [u8] {
        match self {
            Self::Name => b"idem step 1\0",
            Self::Input => b"idem step input 1\0",
            Self::DerivedKey => b"idem derived key shown 1\0",
        }
    }
}

impl CallName {
    /// The digest that derived keys are computed from.
    pub(crate) fn plain(&self) -> &KeyDigest {
        self.plain.as_deref().unwrap_or(self.key.digest())
    }
}

/// How names and fingerprints are computed from digests.
#[derive(Clone, Default)]
pub(crate) enum DigestKey {
    /// Without a secret.
    #[default]
    Plain,
    /// By HMAC-SHA-256 (RFC 2104).
    #[cfg(feature = "digest-key")]
    Keyed(Hmac<Sha256>),
}

impl DigestKey {
    #[cfg(feature = "digest-key")]
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self::Keyed(Hmac::new_from_slice(&secret).expect("a secret of any length"))
    }

    /// The name in the store of a call of this plain digest: the HMAC of `K` and the digest, which fit into one block of
    /// the hash.
    pub(crate) fn name(&self, plain: &KeyDigest) -> KeyDigest {
        match self {
            Self::Plain => *plain,
            #[cfg(feature = "digest-key")]
            Self::Keyed(mac) => {
                let name = Mac::chain_update(mac.clone(), "K").chain_update(plain.as_bytes());
                KeyDigest::from_bytes(name.finalize().into_bytes().into())
            }
        }
    }

    /// The fingerprint in the store of a call of this plain digest: the first 16 bytes of the HMAC of `F`, the digest
    /// and the fingerprint, so that one request under two keys has two. They fit into one block of the hash.
    #[cfg_attr(
        not(feature = "digest-key"),
        allow(unused_variables, reason = "it is a part of a keyed fingerprint")
    )]
    pub(crate) fn fingerprint(&self, plain: &KeyDigest, asked: Fingerprint) -> Fingerprint {
        match self {
            Self::Plain => asked,
            #[cfg(feature = "digest-key")]
            Self::Keyed(_) if asked.is_none() => asked,
            #[cfg(feature = "digest-key")]
            Self::Keyed(mac) => {
                let keyed = Mac::chain_update(mac.clone(), "F")
                    .chain_update(plain.as_bytes())
                    .chain_update(asked.as_bytes());
                let keyed = KeyDigest::from_bytes(keyed.finalize().into_bytes().into());
                Fingerprint::from_bytes(keyed.half())
            }
        }
    }

    /// The digest by which a record knows a part of a step: its name, or its input. `call` is the plain digest of its
    /// call. `part` has a fixed length for each `kind`.
    pub(crate) fn step(&self, kind: StepPart, call: &KeyDigest, part: &[u8]) -> KeyDigest {
        let digest: [u8; 32] = match self {
            Self::Plain => Sha256::new_with_prefix(kind.domain())
                .chain_update(call.as_bytes())
                .chain_update(part)
                .finalize()
                .into(),
            #[cfg(feature = "digest-key")]
            Self::Keyed(mac) => Mac::chain_update(mac.clone(), kind.domain())
                .chain_update(call.as_bytes())
                .chain_update(part)
                .finalize()
                .into_bytes()
                .into(),
        };
        KeyDigest::from_bytes(digest)
    }

    pub(crate) fn is_keyed(&self) -> bool {
        !matches!(self, Self::Plain)
    }

    /// Whether both give a call the same name.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let call = KeyDigest::from_bytes([0; 32]);
        self.name(&call) == other.name(&call)
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            #[cfg(feature = "digest-key")]
            Self::Keyed(_) => "keyed",
        })
    }
}

#[cfg(all(test, feature = "digest-key"))]
mod tests;
