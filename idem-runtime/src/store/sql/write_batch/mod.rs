//! Claims and completions that wait for a connection are sent together, as one statement.

pub(crate) mod queued_call;
mod send;
