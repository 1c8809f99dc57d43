//! What the machine and the observer give: time, threads, counters.

pub(crate) mod backoff;
pub(crate) mod catch_unwind;
pub mod clock;
pub(crate) mod digest_hasher;
pub(crate) mod observer;
pub(crate) mod striped;
