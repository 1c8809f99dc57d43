//! Calls inside the caller's transaction.

mod breaches;
pub(crate) mod clients;
mod commits;
mod connections;
mod diesel_async;
mod digest_key;
mod dropped;
mod ended;
mod fixture;
mod full_disk;
mod isolation;
mod life;
mod locked_file;
mod mysql_async;
mod nesting;
mod outcomes;
mod prelude;
mod records;
mod rolled_back;
mod sea_orm;
mod shutdown;
mod steps;
mod texts;
mod waiting;
