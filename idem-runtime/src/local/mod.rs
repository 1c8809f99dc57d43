//! State that the calls of one process share: singleflight and cache.

pub(crate) mod cache;
pub(crate) mod singleflight;
