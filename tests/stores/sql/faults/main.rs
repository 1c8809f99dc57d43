//! Faults around a SQL database, one in each test: the error is clear, the body does not run twice, and no answer is
//! lost.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod busy;
mod connections;
mod counts;
mod credentials;
mod files;
mod fixture;
mod group_commit;
mod load;
mod other_schemas;
mod outages;
mod overload;
mod pooler;
mod prelude;
mod purging;
mod read_batches;
mod read_only;
mod setup;
mod shared_reads;
mod sizes;
mod test_database;
mod ttl_forever;
mod write_batches;
