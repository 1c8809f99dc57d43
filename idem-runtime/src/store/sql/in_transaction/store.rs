//! The operations of a store inside a transaction of the caller.

use bytes::Bytes;

use crate::identity::operation::RecordKey;
use crate::record::{HEADER, Header, Journal};
use crate::store::sql::argument::{Arguments, SqlArgument};
use crate::store::sql::columns::{HeaderColumns, life_us, stored_body};
use crate::store::sql::error::SqlError;
use crate::store::sql::failure::store_error;
use crate::store::sql::in_transaction::TxError;
use crate::store::sql::operations::append_arguments;
use crate::store::sql::primary_key::{PrimaryKey, primary_key};
use crate::store::sql::session::{SqlSession, execute};
use crate::store::sql::state::SqlStoreState;
use crate::store::{StoreError, StoreErrorKind};

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

impl SqlStoreState {
    /// Refuses a session of another database.
    pub(super) fn check(&self, session: &dyn SqlSession) -> Result<(), TxError> {
        let store = self.dialect.name;
        if session.dialect().name == store {
            Ok(())
        } else {
            Err(TxError::Elsewhere { store })
        }
    }

    fn aborted(&self, what: &str, error: SqlError) -> TxError {
        TxError::Aborted(store_error(self.dialect, what, error))
    }
}

impl SqlStoreState {
    /// Whether a claim beside another writer fails as [`TxError::Busy`].
    pub(crate) fn has_one_writer(&self) -> bool {
        self.dialect.has_one_writer
    }

    /// Stores `record`; before that undoes the writes of the body, if `undo` is set.
    pub(crate) async fn complete_within(
        &self,
        session: &mut dyn SqlSession,
        key: &RecordKey,
        record: &Bytes,
        undo: bool,
    ) -> Result<(), TxError> {
        const WHAT: &str = "storing the answer in the transaction";
        self.check(session)?;
        let done = Header::decode(record).map_err(|error| {
            let kind = StoreErrorKind::Protocol;
            TxError::Aborted(StoreError::new(kind, error.to_string()))
        })?;
        let (primary_key, columns) = (primary_key(key), HeaderColumns::new(&done));
        let [_, state, owner, fence, _, detail, retain, _] = columns.all();
        let (key, body) = (
            SqlArgument::Bytes(&primary_key),
            stored_body(&done, &record[HEADER..]),
        );
        let life = SqlArgument::Int(life_us(done.retain));
        let arguments = [key, state, detail, retain, body, life, owner, fence];
        let before = match (undo, self.dialect.releases) {
            (true, true) => format!("{UNDO_BODY}; {RELEASE}"),
            (true, false) => UNDO_BODY.to_owned(),
            (false, true) => RELEASE.to_owned(),
            (false, false) => String::new(),
        };
        let stored = async {
            // Fails if the transaction is over, so that no answer is committed by itself.
            if !before.is_empty() {
                execute(session, named(&primary_key, &before)).await?;
            }
            let has_name = self.pool.names_on(session);
            let statement = &self.statements.complete_within;
            (statement.send(session, Arguments::One(&arguments), has_name)).await
        };
        let stored = stored.await.map_err(|error| self.aborted(WHAT, error))?;
        if stored.affected > 0 {
            return Ok(());
        }
        let message = format!(
            "{WHAT}: its record is out of reach: the body has ended the transaction, or an error in it has"
        );
        let kind = StoreErrorKind::Unavailable;
        Err(TxError::Aborted(StoreError::new(kind, message)))
    }

    /// Appends to the journal of a claim from outside of the transaction. `false`: the claim is lost.
    pub(crate) async fn append_within(
        &self,
        session: &mut dyn SqlSession,
        key: &RecordKey,
        claim: &Header,
        journal: &Journal,
    ) -> Result<bool, TxError> {
        self.check(session)?;
        let (primary_key, columns) = (primary_key(key), HeaderColumns::new(claim));
        let arguments = append_arguments(&primary_key, &columns, journal);
        let has_name = self.pool.names_on(session);
        let arguments = Arguments::One(&arguments);
        match self
            .statements
            .append
            .send(session, arguments, has_name)
            .await
        {
            Ok(answer) => Ok(answer.affected > 0),
            Err(error) => Err(TxError::Store(store_error(
                self.dialect,
                "an append",
                error,
            ))),
        }
    }

    /// Undoes everything since the claim, and the claim itself.
    pub(crate) async fn undo_within(
        &self,
        session: &mut dyn SqlSession,
        key: &RecordKey,
    ) -> Result<(), TxError> {
        const WHAT: &str = "undoing its part of the transaction";
        self.check(session)?;
        let undone = execute(session, named(&primary_key(key), UNDO)).await;
        undone.map_err(|error| self.aborted(WHAT, error))
    }
}
