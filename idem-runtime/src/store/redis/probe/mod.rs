//! Start-up check of the server: facts and findings.

mod findings;
mod query;
mod report;
mod server;

#[cfg(test)]
mod tests;

pub(super) use self::findings::concerns_a_cache;
pub(super) use self::query::ProbeOptions;
pub use self::report::Report;
pub(super) use self::server::Server;
