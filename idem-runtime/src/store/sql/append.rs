//! An append to the journal of a claim: one statement, unless the record has changed.

use super::argument::Argument;
use super::backend::SqlDriver;
use super::columns::{HeaderColumns, life_us};
use super::compare_and_write::{RecordAccess, RecordWrite};
use super::priority::Priority;
use super::state::SqlStoreState;
use crate::identity::operation::RecordKey;
use crate::record::{Header, Journal, transition};
use crate::store::{AppendReply, Current, StoreError};

impl<B: SqlDriver> SqlStoreState<B> {
    /// Writes the whole journal, whatever the record has of it: a column of bytes grows by being written.
    pub(super) async fn append(
        &self,
        key: &RecordKey,
        claim: &Header,
        journal: &Journal,
        known: usize,
    ) -> Result<AppendReply, StoreError> {
        let bytes = journal.as_bytes();
        // Nothing new: a renewal, on the engine's own thread.
        let pool = if known == bytes.len() {
            &self.engine_pool
        } else {
            &self.pool
        };
        let access = RecordAccess::new(pool, ("an append", Priority::Ending), key);
        let columns = HeaderColumns::new(claim);
        let arguments = arguments(&access.primary_key, &columns, journal);
        let answer = access.run(&self.statements.append, &arguments).await?;
        if answer.affected > 0 {
            return Ok(AppendReply::Appended);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::append(current, claim, journal);
            let write = write.map(|(header, journal)| RecordWrite {
                body: journal.as_bytes().clone(),
                ..RecordWrite::header(header, None)
            });
            (reply, write)
        };
        let unreadable = AppendReply::Unreadable;
        Box::pin(self.compare_and_write(&access, None, decide, unreadable)).await
    }
}

/// The arguments of the statement. `columns` are those of the claim.
pub(super) fn arguments<'a>(
    primary_key: &'a [u8],
    columns: &'a HeaderColumns,
    journal: &'a Journal,
) -> [Argument<'a>; 7] {
    let bytes = journal.as_bytes();
    [
        Argument::Bytes(primary_key),
        Argument::Int(life_us(columns.retain)),
        columns.owner(),
        columns.fence(),
        columns.retain_ms(),
        Argument::Body(Some(bytes)),
        Argument::Int(i64::try_from(bytes.len()).unwrap_or(i64::MAX)),
    ]
}
