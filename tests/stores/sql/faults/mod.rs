//! Faults around a SQL database, one in each test: the error is clear, the body does not run twice, and no answer is
//! lost.

mod connections;
mod counts;
mod credentials;
mod crowds;
mod files;
mod fixture;
mod group_commit;
mod load;
mod losses;
mod other_schemas;
mod outages;
mod pooler;
mod prelude;
mod purging;
mod read_only;
mod setup;
mod sizes;
mod tls;
mod tokio_postgres;
