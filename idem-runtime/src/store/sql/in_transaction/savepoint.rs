//! The savepoints of a claim and of its body.

use crate::store::sql::backend::{Conn, SqlDriver};
use crate::store::sql::failure::store_error;
use crate::store::sql::in_transaction::TxError;
use crate::store::sql::state::SqlStoreState;

/// The script before the answer is stored.
///
/// The answer is stored by a statement of its own, with parameters, because sqlx logs texts, and no answer may be in a
/// log.
pub(super) const RELEASE: &str = "RELEASE SAVEPOINT {claim}";
pub(super) const UNDO_BODY: &str = "ROLLBACK TO SAVEPOINT {body}";
pub(super) const UNDO: &str = "ROLLBACK TO SAVEPOINT {claim}; RELEASE SAVEPOINT {claim}";

/// A text with its savepoints named.
///
/// Each key has its own, because in MySQL a savepoint replaces another of its name,
/// which for a call within a body would be the outer call's.
pub(super) fn named(primary_key: &[u8], text: &str) -> String {
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

impl<B: SqlDriver> SqlStoreState<B> {
    /// Undoes everything since the claim, and the claim itself.
    pub(super) async fn undo_in(
        &self,
        conn: &mut Conn<B>,
        primary_key: &[u8],
    ) -> Result<(), TxError> {
        let undone = B::execute_script(conn, named(primary_key, UNDO)).await;
        undone.map(drop).map_err(|error| {
            TxError::Aborted(store_error::<B>(
                "undoing its part of the transaction",
                error,
            ))
        })
    }
}
