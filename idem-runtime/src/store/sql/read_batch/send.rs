//! Sends reads: alone, or as one statement with other waiting reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot::{Receiver, error::RecvError};
use tokio::time::timeout;

use crate::store::sql::argument::Argument;
use crate::store::sql::backend::SqlDriver;
use crate::store::sql::pool::ConnectionPool;
use crate::store::sql::primary_key::PrimaryKey;
use crate::store::sql::priority::Priority;
use crate::store::sql::read_batch::queue::{ReadStart, ReadTurn, ReadWakeup};
use crate::store::sql::row::Row;
use crate::store::sql::statement_texts::Statements;
use crate::store::{StoreError, StoreErrorKind};

/// How long a read waits for a statement that includes it.
///
/// The read then waits as long again for its row. The limit is longer than a statement takes in normal operation.
const PATIENCE: Duration = Duration::from_millis(250);

impl<B: SqlDriver> ConnectionPool<B> {
    /// Reads the row of a record.
    ///
    /// Waiting reads may share one statement with it, which begins after all of them were called.
    pub(crate) async fn read(
        self: &Arc<Self>,
        purpose: (&'static str, Priority<'_>),
        statements: &Statements,
        primary_key: &PrimaryKey,
    ) -> Result<Option<Row>, StoreError> {
        let turn = match self.reads.enter(primary_key) {
            ReadStart::Now(turn) => Some(turn),
            ReadStart::Later(wakeup, number) => match self.await_row(wakeup, number).await {
                Some(Ok(ReadWakeup::Row(row))) => return Ok(row),
                Some(Ok(ReadWakeup::Turn(turn))) => Some(turn),
                // The read with the turn was dropped, or has failed: then each reads alone.
                Some(Err(_)) => None,
                None => Some(self.reads.overtake()),
            },
        };
        let _turn = match turn {
            Some(turn) if !turn.is_for_one() => {
                // Boxed, because it is rare, and its state would be part of every future.
                match Box::pin(self.read_batch(purpose, statements, primary_key, turn)).await? {
                    Ok(row) => return Ok(row),
                    Err(turn) => Some(turn),
                }
            }
            turn => turn,
        };
        let here = [Argument::Bytes(primary_key)];
        Ok(self.run(purpose, &statements.read, &here).await?.row)
    }

    /// Waits for the result of another read. `None`: it took too long.
    async fn await_row(
        &self,
        mut wakeup: Receiver<ReadWakeup>,
        number: u64,
    ) -> Option<Result<ReadWakeup, RecvError>> {
        let mut taken = false;
        loop {
            match timeout(PATIENCE, &mut wakeup).await {
                Ok(woken) => return Some(woken),
                // That statement has just begun, and another would not return sooner.
                Err(_) if !taken && self.reads.has_taken(number) => taken = true,
                Err(_) => return None,
            }
        }
    }

    /// Reads for the other waiting reads as well.
    ///
    /// Returns the turn if that statement is refused, or its reply cannot be read.
    async fn read_batch(
        self: &Arc<Self>,
        purpose: (&'static str, Priority<'_>),
        statements: &Statements,
        primary_key: &PrimaryKey,
        mut turn: ReadTurn,
    ) -> Result<Result<Option<Row>, ReadTurn>, StoreError> {
        let primary_keys = turn.primary_keys(primary_key);
        let statement = statements.several(primary_keys.len());
        let arguments = [Argument::Keys(&primary_keys)];
        let mut rows = match self.send(purpose, statement, &arguments).await {
            Ok(reply) => reply.rows,
            // The error may be about the row of another read.
            Err((error_kind, error))
                if error_kind.is_some() || error.kind() == StoreErrorKind::Protocol =>
            {
                turn.release_others();
                return Ok(Err(turn));
            }
            Err((_, error)) => return Err(error),
        };
        turn.adapt_width(rows.iter().map(|(_, row)| row.weight()).sum());
        rows.sort_unstable_by_key(|(primary_key, _)| *primary_key);
        let find = |primary_key: &PrimaryKey| {
            let found = rows.binary_search_by_key(primary_key, |(primary_key, _)| *primary_key);
            found.ok().map(|found| rows[found].1.clone())
        };
        turn.deliver(find);
        Ok(Ok(find(primary_key)))
    }
}
