//! Start-up check of the server: facts, refusals and findings.

mod findings;
mod query;
mod report;
mod server;

#[cfg(test)]
mod tests;

pub(super) use self::findings::Use;
pub(super) use self::query::ProbeOptions;
pub use self::report::Report;
pub use self::server::Server;
