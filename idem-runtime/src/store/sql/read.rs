//! A read of a record.

use super::backend::SqlDriver;
use super::compare_and_write::RecordAccess;
use super::priority::Priority;
use super::state::SqlStoreState;
use crate::identity::operation::RecordKey;
use crate::store::{Current, ReadReply, StoreError};

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn read(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        let decide = |current: Option<Current<'_>>, _| {
            let reply = match current {
                None => ReadReply::Absent,
                Some(Current { record, left }) => ReadReply::Found {
                    record: record.clone(),
                    left,
                },
            };
            (reply, None)
        };
        let access = RecordAccess::new(&self.engine_pool, ("a read", Priority::Other), key);
        let reply = self.compare_and_write(&access, None, decide, ReadReply::Unreadable);
        let reply = reply.await?;
        if let ReadReply::Found { record, left } = &reply {
            self.ensure_logged(&access, record, *left).await?;
        }
        Ok(reply)
    }
}
