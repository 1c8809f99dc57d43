//! What the calls of one process share.

pub(crate) mod cache;
pub(crate) mod singleflight;
