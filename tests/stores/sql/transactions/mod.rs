//! Calls inside the caller's transaction.

mod breaches;
mod clients;
mod commits;
mod connections;
mod digest_key;
mod dropped;
mod ended;
mod fixture;
mod full_disk;
mod isolation;
mod life;
mod locked_file;
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
