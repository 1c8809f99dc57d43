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
/// A record stands under the name that its secret gives it. To change the secret without a second start, deploy
/// everywhere, one step after the other:
///
/// 1. `DigestKeys::new(old).also(new)`: every process looks under both names, and claims under the old one;
/// 2. `DigestKeys::new(new).also(old)`: every process looks under both names, and claims under the new one;
/// 3. `DigestKeys::new(new)`, once the longest `ttl` has passed since the end of step 2.
///
/// Two processes of neighbouring steps exclude each other: a claim that is granted counts only after a look under the
/// other name has found nothing, and a key whose record stands there goes on under that name until the record
/// expires. Processes of steps that are no neighbours do not know each other's names, and **both run the body**: end
/// each step before the next begins.
///
/// Keyed digests are introduced the same way, with [`plain`](Self::plain) in the place of the old secret.
///
/// With two secrets a first call takes two round trips more, and a replay one more. A call in a transaction writes
/// two records, one under each name: to [reset](crate::Entry::reset) it, look its entry up again after the first reset,
/// and reset what is found then.
///
/// ```
/// use idem_runtime::{DigestKeys, Engine, store::memory::MemoryStore};
///
/// let (old, new) = ([7; 32], [8; 32]); // from your secret store
/// let engine = Engine::builder(MemoryStore::new())
///     .digest_key(DigestKeys::new(new).also(old))
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
    also: Option<Hash>,
    /// `also` was given more than once.
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

    /// Claims under names without a secret, as an engine without [`DigestKeys`]: the first step towards one.
    #[must_use]
    pub fn plain() -> Self {
        Self::default()
    }

    /// Looks under names by this secret as well. One at a time: `build` refuses a second.
    #[must_use]
    pub fn also(self, secret: [u8; 32]) -> Self {
        self.and(Hash::keyed(secret))
    }

    /// Looks under names without a secret as well, while keyed digests are introduced or given up.
    #[must_use]
    pub fn also_plain(self) -> Self {
        self.and(Hash::Plain)
    }

    fn and(mut self, other: Hash) -> Self {
        self.too_many = self.also.is_some();
        self.also = Some(other);
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
            also: None,
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

/// What else is known of a call whose digests are keyed, or were.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    /// The digest without a secret: derived keys follow from it, and outlive every secret.
    pub(crate) plain: KeyDigest,
    /// Under which its record may stand as well.
    pub(crate) other: Option<Identity>,
}

/// The name of a call's record, and what its derived keys follow from.
#[derive(Clone, Debug)]
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
                "`digest_key`: one other secret at a time; end a rotation before the next begins"
                    .to_owned(),
            );
        }
        let zeros = Identity {
            digest: KeyDigest::from_bytes([0; 32]),
            fingerprint: Fingerprint::NONE,
        };
        match &self.also {
            Some(also) if also.identity(zeros) == self.claims.identity(zeros) => {
                Err("`digest_key`: both secrets are the same".to_owned())
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
                also: None,
                ..
            }
        ) {
            return (plain, None);
        }
        let keyed = Keyed {
            plain: plain.digest,
            other: self.also.as_ref().map(|also| also.identity(plain)),
        };
        (self.claims.identity(plain), Some(Box::new(keyed)))
    }
}

impl fmt::Debug for DigestKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestKeys")
            .field("claims", &self.claims)
            .field("also", &self.also)
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
