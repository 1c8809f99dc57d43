//! A store with injectable faults, between the engine and a real store.

pub use idem_runtime::testing::{Fault, Faulty, StoreOperation};
