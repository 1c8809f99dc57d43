//! A resolution: reads the record, and replaces it.

use bytes::Bytes;

use super::backend::SqlDriver;
use super::compare_and_write::{RecordAccess, RecordWrite};
use super::priority::Priority;
use super::state::SqlStoreState;
use crate::identity::operation::RecordKey;
use crate::record::{Header, Journal, Record, transition};
use crate::store::{Current, ResolveReply, StoreError};

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn resolve(
        &self,
        key: &RecordKey,
        (seen, journal): (&Header, Option<&Journal>),
        record: &Bytes,
    ) -> Result<ResolveReply, StoreError> {
        let new = match Record::decode(record.clone()) {
            Ok(new) => new,
            Err(error) => return Ok(ResolveReply::Unreadable(error)),
        };
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::resolve(current, seen, journal, &new);
            (reply, write.map(RecordWrite::record))
        };
        let access = RecordAccess::new(&self.pool, ("a resolution", Priority::Ending), key);
        self.compare_and_write(&access, None, decide, ResolveReply::Unreadable)
            .await
    }
}
