//! The memory store under many keys, and the cost of a call on it.

mod capacity;
mod costs;
