//! The tables: one file for each specification.

pub(super) mod acp;
pub(super) mod draft;
pub(super) mod iceberg_rest;
pub(super) mod stripe_v1;
pub(super) mod stripe_v2;
pub(super) mod ucp;
pub(super) mod x402;
