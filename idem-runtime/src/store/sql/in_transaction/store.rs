//! The operations of a store inside a transaction of the caller.

use std::time::Duration;

use bytes::Bytes;

use crate::identity::operation::RecordKey;
use crate::record::{Header, Journal};
use crate::store::sql::backend::{Conn, SqlDriver};
use crate::store::sql::in_transaction::{TransactionalStore, TxError, TxFuture};
use crate::store::sql::primary_key::primary_key;
use crate::store::sql::state::SqlStore;
use crate::store::sql::transaction::SqlConnection;
use crate::store::{ClaimReply, ClaimRequest};

fn connection_to<B: SqlDriver>(conn: SqlConnection<'_>) -> Result<&mut Conn<B>, TxError> {
    B::connection(conn).ok_or(TxError::Elsewhere { store: B::NAME })
}

impl<B: SqlDriver> TransactionalStore for SqlStore<B> {
    fn has_one_writer(&self) -> bool {
        B::WAITS
    }

    fn claim_within<'a>(
        &'a self,
        conn: SqlConnection<'a>,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        wait: Duration,
    ) -> TxFuture<'a, ClaimReply> {
        Box::pin(async move {
            let conn = connection_to::<B>(conn)?;
            self.0.claim_in(conn, key, request, wait).await
        })
    }

    fn complete_within<'a>(
        &'a self,
        conn: SqlConnection<'a>,
        key: &'a RecordKey,
        record: &'a Bytes,
        undo: bool,
    ) -> TxFuture<'a, ()> {
        Box::pin(async move {
            let conn = connection_to::<B>(conn)?;
            self.0.complete_in(conn, key, record, undo).await
        })
    }

    fn append_within<'a>(
        &'a self,
        conn: SqlConnection<'a>,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
    ) -> TxFuture<'a, bool> {
        Box::pin(async move {
            let conn = connection_to::<B>(conn)?;
            self.0.append_in(conn, key, claim, journal).await
        })
    }

    fn undo_within<'a>(&'a self, conn: SqlConnection<'a>, key: &'a RecordKey) -> TxFuture<'a, ()> {
        Box::pin(async move {
            let conn = connection_to::<B>(conn)?;
            self.0.undo_in(conn, &primary_key(key)).await
        })
    }
}
