//! Servers that meet a specification but for one thing.

use idem_conformance::http::Specification;

use super::shop::Setup;

/// A server that meets a specification but for one thing.
pub(super) struct Plant {
    pub(super) name: &'static str,
    pub(super) of: &'static [Specification],
    pub(super) plant: fn(Setup) -> Setup,
    /// The rows that fail, in their order.
    pub(super) fails: fn(Specification) -> &'static str,
}

pub(super) const PLANTS: &[Plant] = &[];
