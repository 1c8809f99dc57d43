//! The environment of an engine: time, back-off, panics, counters, observer.

pub(crate) mod backoff;
pub(crate) mod catch_unwind;
#[cfg(feature = "_tls")]
pub(crate) mod certificates;
pub mod clock;
pub(crate) mod digest_hasher;
pub(crate) mod observer;
pub(crate) mod striped;
