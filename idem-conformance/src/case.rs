//! A case: a test of one rule of the contract.

use std::sync::Arc;

use super::fixture::{BoxFuture, Fixture};

/// The difference between stores that makes a case relevant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tag {
    /// The deciding code. Stores that share it, and differ only in the transport, pass together.
    Decision,
    /// The transport as well: the connection, its protocol, the topology, the rights of a user, large bodies. Such a
    /// case should run on every kind of connection.
    Transport,
}

/// A test of one rule of the contract.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Case {
    /// The requirement on a store, in words.
    pub name: &'static str,
    /// The number of the rule in the contract of [`Store`](idem_runtime::store::Store); 0 for sequences, which test most.
    pub rule: u8,
    /// The difference that makes the case relevant.
    pub tag: Tag,
    /// Runs the case, which panics if the store is wrong.
    pub run: fn(Arc<dyn Fixture>) -> BoxFuture<'static, ()>,
}
