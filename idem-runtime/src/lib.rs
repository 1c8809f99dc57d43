//! Idempotency for async Rust.

mod canonical;
mod fingerprint;
mod key;

pub use canonical::CanonicalError;
pub use fingerprint::{Digest, Fingerprint, FingerprintBuilder, InvalidInput, ToFingerprint};
pub use key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, KeyError, KeyPart, ToKey};
