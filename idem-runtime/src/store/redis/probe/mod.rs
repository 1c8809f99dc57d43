//! Start-up check of the server: facts, refusals and warnings.

mod acl;
mod display;
mod facts;
mod findings;
mod info;
mod query;
mod report;
mod rights;
mod server;
mod warnings;

#[cfg(test)]
mod tests;

pub(super) use self::query::ProbeOptions;
pub use self::report::Report;
pub use self::server::Server;
pub(super) use self::warnings::Use;
