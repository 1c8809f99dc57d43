//! Idempotency keys for other parties: digests of the plain digest of a call.

use sha2::{Digest, Sha256};

use crate::identity::digest_key::{DigestKey, StepPart};
use crate::identity::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, KeyError, ToKey};

/// The digest of a step's name alone.
pub(crate) fn step_name<K: ToKey + ?Sized>(name: &K) -> Result<KeyDigest, KeyError> {
    KeyBuilder::new("idem step", DEFAULT_MAX_KEY_BYTES).key(name)
}

pub(crate) fn of_label(plain: &KeyDigest, label: &str) -> KeyDigest {
    // The first two parts have fixed lengths, so no two inputs run together.
    hash(b"idem derived key 1\0", plain, label.as_bytes())
}

/// The key of a step. `name` is the [digest](step_name) of its name.
pub(crate) fn of_step(plain: &KeyDigest, name: &KeyDigest) -> KeyDigest {
    hash(b"idem step key 1\0", plain, name.as_bytes())
}

/// The digest of a derived key for logs.
///
/// A log that showed the key itself would let its reader confirm guesses of the call's key, also under a digest key.
pub(crate) fn shown(digests: &DigestKey, plain: &KeyDigest, derived: &KeyDigest) -> KeyDigest {
    digests.step(StepPart::DerivedKey, plain, derived.as_bytes())
}

fn hash(domain: &[u8], plain: &KeyDigest, part: &[u8]) -> KeyDigest {
    let hash = Sha256::new_with_prefix(domain)
        .chain_update(plain.as_bytes())
        .chain_update(part);
    KeyDigest::from_bytes(hash.finalize().into())
}
