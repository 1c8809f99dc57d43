//! Metadata that an encrypted answer is bound to.

use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::record::OutcomeKind;

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
