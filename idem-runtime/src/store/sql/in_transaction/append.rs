//! An append inside a transaction of the caller, which has the only lock of its database.

use crate::identity::operation::RecordKey;
use crate::record::{Header, Journal};
use crate::store::sql::append::arguments;
use crate::store::sql::backend::{Conn, SqlDriver};
use crate::store::sql::columns::HeaderColumns;
use crate::store::sql::failure::store_error;
use crate::store::sql::in_transaction::TxError;
use crate::store::sql::primary_key::primary_key;
use crate::store::sql::state::SqlStoreState;

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn append_in(
        &self,
        conn: &mut Conn<B>,
        key: &RecordKey,
        claim: &Header,
        journal: &Journal,
    ) -> Result<bool, TxError> {
        let (primary_key, columns) = (primary_key(key), HeaderColumns::new(claim));
        let arguments = arguments(&primary_key, &columns, journal);
        let named = self.pool.names_on(conn);
        let appended = B::run(conn, &self.statements.append, &arguments, named).await;
        match appended {
            Ok(answer) => Ok(answer.affected > 0),
            Err(error) => Err(TxError::Store(store_error::<B>("an append", error))),
        }
    }
}
