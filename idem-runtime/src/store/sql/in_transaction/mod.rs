//! Claims and completions inside a transaction of the caller.
//!
//! A claim is a row that is invisible before the transaction is committed, and that other claims of the same key wait
//! for. Until the answer replaces it, it is an unknown outcome: if a transaction is committed after its call was
//! dropped half-way, nothing runs a second time.

mod claim;
mod store;

use crate::store::StoreError;
use crate::store::sql::state::SqlStoreState;

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum TxError {
    /// The transaction is of another database than the store.
    Elsewhere { store: &'static str },
    /// Another transaction holds the row for longer than this call waits. The caller's transaction can go on.
    Locked,
    /// Another connection holds the only lock for writing; the claim has not waited. The caller's transaction can go
    /// on.
    Busy,
    /// The transaction can only be rolled back.
    Aborted(StoreError),
    /// The store refuses, or is not available.
    Store(StoreError),
}

/// A store that can work inside a transaction of the caller.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Sql<'a>(pub(crate) &'a SqlStoreState);

debug_fields!(Sql<'_> {});
