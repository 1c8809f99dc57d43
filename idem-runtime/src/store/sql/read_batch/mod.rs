//! Reads that wait for another are sent together, as one statement.

pub(in crate::store::sql) mod queue;
mod send;
