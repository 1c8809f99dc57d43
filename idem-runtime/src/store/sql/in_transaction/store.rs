//! The operations of a store inside a transaction of the caller.

use std::time::Duration;

use bytes::Bytes;

use crate::identity::operation::RecordKey;
use crate::record::{HEADER, Header, Journal};
use crate::store::sql::argument::Argument;
use crate::store::sql::backend::{Conn, SqlDriver};
use crate::store::sql::columns::{HeaderColumns, life_us, stored_body};
use crate::store::sql::failure::store_error;
use crate::store::sql::in_transaction::{TransactionalStore, TxError, TxFuture};
use crate::store::sql::operations::append_arguments;
use crate::store::sql::primary_key::{PrimaryKey, primary_key};
use crate::store::sql::state::{SqlStore, SqlStoreState};
use crate::store::sql::transaction::SqlConnection;
use crate::store::{ClaimReply, ClaimRequest, StoreError, StoreErrorKind};

/// The script before the answer is stored.
///
/// The answer is stored by a statement of its own, with parameters, because sqlx logs texts, and no answer may be in a
/// log.
const RELEASE: &str = "RELEASE SAVEPOINT {claim}";
const UNDO_BODY: &str = "ROLLBACK TO SAVEPOINT {body}";
pub(super) const UNDO: &str = "ROLLBACK TO SAVEPOINT {claim}; RELEASE SAVEPOINT {claim}";

/// A text with its savepoints named.
///
/// Each key has its own, because in MySQL a savepoint replaces another of its name, which for a call within a body would
/// be the outer call's.
pub(super) fn named(primary_key: &PrimaryKey, text: &str) -> String {
    // From the hash of the operation, at the beginning of a primary key, and the digest, at its end.
    let number = match (primary_key.first_chunk(), primary_key.last_chunk()) {
        (Some(operation), Some(digest)) => {
            u64::from_be_bytes(*operation) ^ u64::from_be_bytes(*digest)
        }
        _ => 0,
    };
    text.replace("{claim}", &format!("idem_claim_{number:016x}"))
        .replace("{body}", &format!("idem_body_{number:016x}"))
}

fn connection_to<B: SqlDriver>(conn: SqlConnection<'_>) -> Result<&mut Conn<B>, TxError> {
    let store = B::DIALECT.name;
    B::connection(conn).ok_or(TxError::Elsewhere { store })
}

fn aborted<B: SqlDriver>(what: &str, error: sqlx::Error) -> TxError {
    TxError::Aborted(store_error::<B>(what, error))
}

impl<B: SqlDriver> TransactionalStore for SqlStore<B> {
    fn has_one_writer(&self) -> bool {
        B::DIALECT.has_one_writer
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
        const WHAT: &str = "storing the answer in the transaction";
        Box::pin(async move {
            let conn = connection_to::<B>(conn)?;
            let done = Header::decode(record).map_err(|error| {
                let kind = StoreErrorKind::Protocol;
                TxError::Aborted(StoreError::new(kind, error.to_string()))
            })?;
            let (primary_key, columns) = (primary_key(key), HeaderColumns::new(&done));
            let [_, state, owner, fence, _, detail, retain, _] = columns.all();
            let (key, body) = (
                Argument::Bytes(&primary_key),
                stored_body(&done, &record[HEADER..]),
            );
            let life = Argument::Int(life_us(done.retain));
            let arguments = [key, state, detail, retain, body, life, owner, fence];
            let before = match (undo, B::DIALECT.releases) {
                (true, true) => format!("{UNDO_BODY}; {RELEASE}"),
                (true, false) => UNDO_BODY.to_owned(),
                (false, true) => RELEASE.to_owned(),
                (false, false) => String::new(),
            };
            let stored = async {
                // Fails if the transaction is over, so that no answer is committed by itself.
                if !before.is_empty() {
                    B::execute_script(conn, named(&primary_key, &before)).await?;
                }
                let has_name = self.0.pool.names_on(conn);
                B::run(
                    conn,
                    &self.0.statements.complete_within,
                    &arguments,
                    has_name,
                )
                .await
            };
            if stored
                .await
                .map_err(|error| aborted::<B>(WHAT, error))?
                .affected
                > 0
            {
                return Ok(());
            }
            let message = format!(
                "{WHAT}: its record is out of reach: the body has ended the transaction, or an error in it has"
            );
            let kind = StoreErrorKind::Unavailable;
            Err(TxError::Aborted(StoreError::new(kind, message)))
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
            let (primary_key, columns) = (primary_key(key), HeaderColumns::new(claim));
            let arguments = append_arguments(&primary_key, &columns, journal);
            let has_name = self.0.pool.names_on(conn);
            match B::run(conn, &self.0.statements.append, &arguments, has_name).await {
                Ok(answer) => Ok(answer.affected > 0),
                Err(error) => Err(TxError::Store(store_error::<B>("an append", error))),
            }
        })
    }

    fn undo_within<'a>(&'a self, conn: SqlConnection<'a>, key: &'a RecordKey) -> TxFuture<'a, ()> {
        Box::pin(async move {
            let conn = connection_to::<B>(conn)?;
            self.0.undo_in(conn, &primary_key(key)).await
        })
    }
}

impl<B: SqlDriver> SqlStoreState<B> {
    /// Undoes everything since the claim, and the claim itself.
    pub(super) async fn undo_in(
        &self,
        conn: &mut Conn<B>,
        primary_key: &PrimaryKey,
    ) -> Result<(), TxError> {
        const WHAT: &str = "undoing its part of the transaction";
        let undone = B::execute_script(conn, named(primary_key, UNDO)).await;
        undone.map(drop).map_err(|error| aborted::<B>(WHAT, error))
    }
}
