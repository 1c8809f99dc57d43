//! The memory store under many keys, and the cost of a call on it.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod capacity;
mod costs;
