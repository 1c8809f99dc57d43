//! A completion: one statement, unless the record has changed.

use bytes::Bytes;

use super::argument::Argument;
use super::backend::SqlDriver;
use super::columns::{HeaderColumns, life_us, stored_body};
use super::compare_and_write::{HeaderWrite, RecordAccess};
use super::priority::Priority;
use super::state::SqlStoreState;
use crate::identity::operation::RecordKey;
use crate::record::transition;
use crate::record::{HEADER, Header};
use crate::store::{CompleteReply, Current, StoreError};

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn complete(
        &self,
        key: &RecordKey,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        let done = match Header::decode(record) {
            Ok(done) => done,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let access = RecordAccess::new(
            &self.pool,
            ("a completion", Priority::Ending),
            key,
            &record[HEADER..],
        );
        let columns = HeaderColumns::new(&done);
        let arguments = [
            Argument::Bytes(&access.primary_key),
            columns.state(),
            columns.detail(),
            columns.retain_ms(),
            stored_body(&done, access.body),
            Argument::Int(life_us(columns.retain)),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.fingerprint(),
        ];
        let statement = &self.statements.complete;
        let answer = access.run(statement, &arguments).await?;
        if answer.affected > 0 {
            return Ok(CompleteReply::Stored { late: false });
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::complete(current, &done);
            let write = write.map(|header| HeaderWrite {
                header,
                life: Some(header.retain),
                notifies: true,
            });
            (reply, write)
        };
        let unreadable = CompleteReply::Unreadable;
        Box::pin(self.compare_and_write(&access, None, decide, unreadable)).await
    }
}
