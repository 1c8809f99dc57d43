//! Keyed digests: what a reader of the store, or of a log, learns of a key and of a request.

use std::fmt;

#[cfg(feature = "digest-key")]
use hmac::{Hmac, KeyInit, Mac};
#[cfg(feature = "digest-key")]
use sha2::Sha256;

use crate::fingerprint::Fingerprint;
use crate::key::KeyDigest;
use crate::operation::RecordKey;

/// The secrets by which keys and requests are hashed. See
/// [`EngineBuilder::digest_key`](crate::EngineBuilder::digest_key).
///
/// A secret is 32 random bytes from your secret store, the same in every process. It is not the key of
/// [`encrypt`](crate::EngineBuilder::encrypt), nor the secret of tokens.
///
/// # Changing the secret
///
/// A record stands under the name that its secret gives it. With a [former](Self::formerly) secret each call looks there
/// first, and a key that has a record under its former name goes on under that until the record expires. To change the
/// secret, or to introduce one in a system with records,
///
/// 1. **stop every process** that has the former secret, or none;
/// 2. start them with `DigestKeys::new(new).formerly(old)`, or `formerly_plain()`;
/// 3. leave the former secret out once no [`FormerDigestKey`](crate::EventKind::FormerDigestKey) has been told, and no
///    entry settled by hand, for the longest `ttl` (and life of a token) and the longest `max_run`. Records that are kept
///    for ever need it for ever.
///
/// **Processes of different secrets at once run a body each**: neither sees what the other claims. Hence the stop, also
/// to go back. Where that is too much, do not change the secret of the digests, but keep it encrypted by a key that you
/// change.
///
/// While there is a former secret, every call takes one round trip more, and names by both secrets (or by none) are sent
/// to the server.
///
/// ```
/// use idem_runtime::{DigestKeys, Engine, store::memory::MemoryStore};
///
/// let (old, new) = ([7; 32], [8; 32]); // from your secret store
/// let engine = Engine::builder(MemoryStore::new())
///     .digest_key(DigestKeys::new(new).formerly(old))
///     .build()?;
/// # Ok::<_, idem_runtime::Error>(())
/// ```
#[cfg_attr(
    not(feature = "digest-key"),
    allow(unreachable_pub, reason = "it is public with the feature")
)]
#[derive(Clone)]
pub struct DigestKeys {
    claims: Hash,
    former: Option<Hash>,
    /// More than one was given.
    too_many: bool,
}

#[cfg(feature = "digest-key")]
impl DigestKeys {
    /// Claims under names by this secret.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        Self {
            claims: Hash::keyed(secret),
            ..Self::default()
        }
    }

    /// Claims under names without a secret, as an engine without [`DigestKeys`]: to give keyed digests up.
    #[must_use]
    pub fn plain() -> Self {
        Self::default()
    }

    /// Looks under the names by this secret first. One at a time: `build` refuses a second.
    #[must_use]
    pub fn formerly(self, secret: [u8; 32]) -> Self {
        self.after(Hash::keyed(secret))
    }

    /// Looks under the names without a secret first.
    #[must_use]
    pub fn formerly_plain(self) -> Self {
        self.after(Hash::Plain)
    }

    fn after(mut self, former: Hash) -> Self {
        self.too_many = self.former.is_some();
        self.former = Some(former);
        self
    }
}

#[cfg(feature = "digest-key")]
impl From<[u8; 32]> for DigestKeys {
    fn from(secret: [u8; 32]) -> Self {
        Self::new(secret)
    }
}

impl Default for DigestKeys {
    /// Names without a secret.
    fn default() -> Self {
        Self {
            claims: Hash::Plain,
            former: None,
            too_many: false,
        }
    }
}

/// By which a store knows a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) digest: KeyDigest,
    pub(crate) fingerprint: Fingerprint,
}

/// What else is known of a call whose digests are keyed, or were. No `Debug`: the plain digest is not to be shown.
#[derive(Clone, Copy)]
pub(crate) struct Keyed {
    /// The digest without a secret: derived keys follow from it, and outlive every secret.
    pub(crate) plain: KeyDigest,
    /// Under which its record may stand from before.
    pub(crate) former: Option<Identity>,
}

/// The name of a call's record, and what its derived keys follow from.
#[derive(Clone)]
pub(crate) struct CallName {
    pub(crate) key: RecordKey,
    /// `None`: no digest is keyed.
    pub(crate) keyed: Option<Box<Keyed>>,
}

impl CallName {
    /// What derived keys follow from.
    pub(crate) fn plain(&self) -> &KeyDigest {
        (self.keyed.as_ref()).map_or(self.key.digest(), |keyed| &keyed.plain)
    }
}

impl DigestKeys {
    /// What is wrong with these settings.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.too_many {
            return Err(
                "`digest_key`: one former secret at a time; end a change before the next begins"
                    .to_owned(),
            );
        }
        let zeros = Identity {
            digest: KeyDigest::from_bytes([0; 32]),
            fingerprint: Fingerprint::NONE,
        };
        match &self.former {
            Some(former) if former.identity(zeros) == self.claims.identity(zeros) => {
                Err("`digest_key`: the former secret is the same".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The name under which a call of this plain identity claims, and what else is to be known of it.
    pub(crate) fn identify(&self, plain: Identity) -> (Identity, Option<Box<Keyed>>) {
        if matches!(
            self,
            Self {
                claims: Hash::Plain,
                former: None,
                ..
            }
        ) {
            return (plain, None);
        }
        let keyed = Keyed {
            plain: plain.digest,
            former: (self.former.as_ref()).map(|former| former.identity(plain)),
        };
        (self.claims.identity(plain), Some(Box::new(keyed)))
    }
}

impl fmt::Debug for DigestKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestKeys")
            .field("claims", &self.claims)
            .field("former", &self.former)
            .finish_non_exhaustive()
    }
}

/// How a name is made of a digest.
#[derive(Clone)]
enum Hash {
    /// Not at all.
    Plain,
    /// By HMAC-SHA-256 (RFC 2104).
    #[cfg(feature = "digest-key")]
    Keyed(Hmac<Sha256>),
}

impl Hash {
    #[cfg(feature = "digest-key")]
    fn keyed(secret: [u8; 32]) -> Self {
        Self::Keyed(Hmac::new_from_slice(&secret).expect("a secret of any length"))
    }

    /// The name is the HMAC of `K` and the digest; the fingerprint the first 16 bytes of the HMAC of `F`, the digest
    /// and the fingerprint, so that one request under two keys has two. Both fit into one block of the hash.
    fn identity(&self, plain: Identity) -> Identity {
        match self {
            Self::Plain => plain,
            #[cfg(feature = "digest-key")]
            Self::Keyed(mac) => {
                let Identity {
                    digest,
                    fingerprint,
                } = plain;
                let name = Mac::chain_update(mac.clone(), "K").chain_update(digest.as_bytes());
                let name = KeyDigest::from_bytes(name.finalize().into_bytes().into());
                if fingerprint.is_none() {
                    return Identity {
                        digest: name,
                        fingerprint,
                    };
                }
                let asked = Mac::chain_update(mac.clone(), "F")
                    .chain_update(digest.as_bytes())
                    .chain_update(fingerprint.as_bytes());
                let asked: [u8; 32] = asked.finalize().into_bytes().into();
                let mut first = [0; 16];
                first.copy_from_slice(&asked[..16]);
                Identity {
                    digest: name,
                    fingerprint: Fingerprint::from_bytes(first),
                }
            }
        }
    }
}

impl fmt::Debug for Hash {
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
