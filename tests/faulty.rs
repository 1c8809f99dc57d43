//! A store that fails where a test tells it to: between the engine and a real one.

pub use idem_runtime::conformance::{Fault, Faulty, Operation};
