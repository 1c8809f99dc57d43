//! Reads that wait for another are sent together, as one statement.

pub(crate) mod queue;
mod send;
