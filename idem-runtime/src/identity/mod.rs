//! Identity of a call: its key, its fingerprint, and the name of its record.

pub(crate) mod call_id;
pub(crate) mod canonical;
pub(crate) mod derived_key;
pub(crate) mod digest_key;
pub(crate) mod fingerprint;
pub(crate) mod key;
pub(crate) mod operation;
#[cfg_attr(not(feature = "tokens"), path = "presented_token/without.rs")]
pub(crate) mod presented_token;
pub(crate) mod redacted;
#[cfg_attr(not(feature = "tokens"), path = "token/without.rs")]
pub(crate) mod token;
