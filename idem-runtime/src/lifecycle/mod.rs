//! The path of one call, from admission to completion.

pub(crate) mod acquire;
pub(crate) mod admit;
pub(crate) mod background_thread;
pub(crate) mod claim;
pub(crate) mod claim_or_follow;
#[cfg(feature = "_sql")]
pub(crate) mod claimed_keys;
pub(crate) mod context;
pub(crate) mod core;
pub(crate) mod ending;
pub(crate) mod entries;
pub(crate) mod expired;
pub(crate) mod in_flight;
pub(crate) mod inspect;
pub(crate) mod interpret;
pub(crate) mod lease;
pub(crate) mod outage;
pub(crate) mod reconcile;
pub(crate) mod remote_wait;
pub(crate) mod renewal_guard;
pub(crate) mod run_limit;
pub(crate) mod start;
pub(crate) mod unacked_claim;
