//! Claims and completions inside a transaction of the caller.
//!
//! A claim is a row that is invisible before the transaction is committed, and that other claims of the same key wait
//! for. Until the answer replaces it, it is an unknown outcome: if a transaction is committed after its call was
//! dropped half-way, nothing runs a second time.

mod claim;
mod store;

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use crate::identity::operation::RecordKey;
use crate::record::{Header, Journal};
use crate::store::sql::session::SqlSession;
use crate::store::{ClaimReply, ClaimRequest, StoreError};

/// The result of an operation inside a transaction.
pub(crate) type TxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TxError>> + Send + 'a>>;

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

/// A store that can work inside a transaction of its database.
pub(crate) trait TransactionalStore: Send + Sync {
    /// Whether a claim beside another writer fails as [`TxError::Busy`].
    fn has_one_writer(&self) -> bool;

    /// Claims, and waits up to `wait` for a transaction that holds the row.
    fn claim_within<'a>(
        &'a self,
        session: &'a mut dyn SqlSession,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        wait: Duration,
    ) -> TxFuture<'a, ClaimReply>;

    /// Stores `record`; before that undoes the writes of the body, if `undo` is set.
    fn complete_within<'a>(
        &'a self,
        session: &'a mut dyn SqlSession,
        key: &'a RecordKey,
        record: &'a Bytes,
        undo: bool,
    ) -> TxFuture<'a, ()>;

    /// Appends to the journal of a claim that was made outside of the transaction. `false`: the claim is lost.
    fn append_within<'a>(
        &'a self,
        session: &'a mut dyn SqlSession,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
    ) -> TxFuture<'a, bool>;

    /// Undoes everything since the claim, and the claim itself.
    fn undo_within<'a>(
        &'a self,
        session: &'a mut dyn SqlSession,
        key: &'a RecordKey,
    ) -> TxFuture<'a, ()>;
}

/// A store that can work inside a transaction of the caller.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Sql<'a>(pub(crate) &'a dyn TransactionalStore);

debug_fields!(Sql<'_> {});
