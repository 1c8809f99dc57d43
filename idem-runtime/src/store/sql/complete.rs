//! A completion: one statement, unless the record has changed.

use bytes::Bytes;

use super::argument::Argument;
use super::backend::SqlDriver;
use super::columns::{HeaderColumns, life_us, stored_body};
use super::compare_and_write::{RecordAccess, RecordWrite};
use super::priority::Priority;
use super::state::SqlStoreState;
use crate::identity::operation::RecordKey;
use crate::record::{HEADER, Record, transition};
use crate::store::{CompleteReply, Current, StoreError};

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn complete(
        &self,
        key: &RecordKey,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        let finished = match Record::decode(record.clone()) {
            Ok(finished) => finished,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let access = RecordAccess::new(&self.pool, ("a completion", Priority::Ending), key);
        let done = &finished.header;
        let columns = HeaderColumns::new(done);
        let arguments = [
            Argument::Bytes(&access.primary_key),
            columns.state(),
            columns.detail(),
            columns.retain_ms(),
            stored_body(done, &record[HEADER..]),
            Argument::Int(life_us(columns.retain)),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.fingerprint(),
        ];
        // An unknown outcome is rare, and keeps the steps of the record.
        if !done.is_done_unknown() {
            let statement = if done.journal.is_none() {
                &self.statements.complete
            } else {
                &self.statements.complete_with_attempts
            };
            let answer = access.run(statement, &arguments).await?;
            if answer.affected > 0 {
                return Ok(CompleteReply::Stored { late: false });
            }
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::complete(current, &finished);
            (reply, write.map(RecordWrite::record))
        };
        let unreadable = CompleteReply::Unreadable;
        Box::pin(self.compare_and_write(&access, None, decide, unreadable)).await
    }
}
