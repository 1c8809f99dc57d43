//! The primary key of a record's row.

use sha2::{Digest as _, Sha256};

use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;

/// The length of a [`PrimaryKey`] in bytes.
pub(crate) const PRIMARY_KEY_LEN: usize = HASH_LEN + 32;
const HASH_LEN: usize = 16;

/// The primary key of a record: the hash of its operation, and its digest.
///
/// So the records of an operation are adjacent, and a listing reads their digests from it.
pub(crate) type PrimaryKey = [u8; PRIMARY_KEY_LEN];

/// The first bytes of the primary keys of an operation.
fn operation_hash(prefix: &str, operation: &str) -> [u8; HASH_LEN] {
    let mut hash = Sha256::new();
    for part in [prefix.as_bytes(), operation.as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    *hash.first_chunk().expect("32 are more than 16")
}

/// The primary key of a key's record.
pub(crate) fn primary_key(key: &RecordKey) -> PrimaryKey {
    primary_key_of(
        key.prefix(),
        key.operation().as_str(),
        *key.digest().as_bytes(),
    )
}

/// The first and the last primary key of an operation.
pub(super) fn primary_key_bounds(prefix: &str, operation: &str) -> [PrimaryKey; 2] {
    [[0; 32], [0xff; 32]].map(|digest| primary_key_of(prefix, operation, digest))
}

fn primary_key_of(prefix: &str, operation: &str, digest: [u8; 32]) -> PrimaryKey {
    let mut primary_key = [0; PRIMARY_KEY_LEN];
    primary_key[..HASH_LEN].copy_from_slice(&operation_hash(prefix, operation));
    primary_key[HASH_LEN..].copy_from_slice(&digest);
    primary_key
}

/// The digest in a primary key, if prefix and operation are these.
pub(super) fn digest_at(
    primary_key: &PrimaryKey,
    prefix: &str,
    operation: &str,
) -> Option<KeyDigest> {
    let digest = primary_key[HASH_LEN..].try_into().ok()?;
    (primary_key[..HASH_LEN] == operation_hash(prefix, operation))
        .then_some(KeyDigest::from_bytes(digest))
}

/// Parses a primary key of hexadecimal digits.
pub(super) fn from_hex(text: &str) -> Option<PrimaryKey> {
    from_digits(text.as_bytes())?.try_into().ok()
}

/// The bytes of hexadecimal digits.
pub(super) fn from_digits(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| u8::try_from(digit(pair[0])? << 4 | digit(*pair.get(1)?)?).ok();
    digits.chunks(2).map(byte).collect()
}
