//! The memory store under many keys, and a call's cost on it.

mod capacity;
mod costs;
