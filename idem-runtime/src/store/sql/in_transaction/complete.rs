//! A completion inside a transaction of the caller.

use bytes::Bytes;

use crate::identity::operation::RecordKey;
use crate::record::{HEADER, Header};
use crate::store::sql::argument::Argument;
use crate::store::sql::backend::{Conn, SqlDriver};
use crate::store::sql::columns::{HeaderColumns, life_us, stored_body};
use crate::store::sql::failure::store_error;
use crate::store::sql::in_transaction::TxError;
use crate::store::sql::in_transaction::savepoint::{RELEASE, UNDO_BODY, named};
use crate::store::sql::primary_key::primary_key;
use crate::store::sql::state::SqlStoreState;
use crate::store::{StoreError, StoreErrorKind};

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn complete_in(
        &self,
        conn: &mut Conn<B>,
        key: &RecordKey,
        record: &Bytes,
        undo: bool,
    ) -> Result<(), TxError> {
        const WHAT: &str = "storing the answer in the transaction";
        let done = match Header::decode(record) {
            Ok(done) => done,
            Err(error) => {
                let kind = StoreErrorKind::Protocol;
                return Err(TxError::Aborted(StoreError::new(kind, error.to_string())));
            }
        };
        let (primary_key, columns) = (primary_key(key), HeaderColumns::new(&done));
        let arguments = [
            Argument::Bytes(&primary_key),
            columns.state(),
            columns.detail(),
            columns.retain_ms(),
            stored_body(&done, &record[HEADER..]),
            Argument::Int(life_us(done.retain)),
            columns.owner(),
            columns.fence(),
        ];
        let before = match (undo, B::RELEASES) {
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
            let named = self.pool.names_on(conn);
            let stored = B::run(conn, &self.statements.complete_within, &arguments, named).await?;
            Ok(stored.affected)
        };
        match stored.await {
            Ok(0) => Err(ended(WHAT)),
            Ok(_) => Ok(()),
            Err(error) => Err(TxError::Aborted(store_error::<B>(WHAT, error))),
        }
    }
}

fn ended(what: &str) -> TxError {
    let message = format!(
        "{what}: its record is out of reach: the body has ended the transaction, or an error in it has"
    );
    let kind = StoreErrorKind::Unavailable;
    TxError::Aborted(StoreError::new(kind, message))
}
