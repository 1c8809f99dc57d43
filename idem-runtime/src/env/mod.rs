//! The environment of an engine: time, back-off, panics, counters, observer.

pub(crate) mod backoff;
pub(crate) mod call_end;
pub(crate) mod call_span;
pub(crate) mod catch_unwind;
#[cfg(feature = "_certificates")]
pub(crate) mod certificates;
pub mod clock;
pub(crate) mod credentials;
pub(crate) mod digest_hasher;
pub(crate) mod lock;
#[cfg(feature = "metrics")]
pub(crate) mod metrics_observer;
pub(crate) mod moment;
pub(crate) mod observer;
pub(crate) mod observers;
pub(crate) mod striped;
#[cfg(feature = "tracing")]
pub(crate) mod tracing_observer;
pub(crate) mod wants;
