//! A resolution: reads the record, and replaces it.

use bytes::Bytes;

use super::backend::SqlDriver;
use super::compare_and_write::{HeaderWrite, RecordAccess};
use super::priority::Priority;
use super::state::SqlStoreState;
use crate::identity::operation::RecordKey;
use crate::record::transition;
use crate::record::{HEADER, Header};
use crate::store::{Current, ResolveReply, StoreError};

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn resolve(
        &self,
        key: &RecordKey,
        seen: &Header,
        record: &Bytes,
    ) -> Result<ResolveReply, StoreError> {
        let new = match Header::decode(record) {
            Ok(new) => new,
            Err(error) => return Ok(ResolveReply::Unreadable(error)),
        };
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::resolve(current, seen, &new);
            let write = write.map(|header| HeaderWrite {
                header,
                life: Some(header.retain),
                notifies: true,
            });
            (reply, write)
        };
        let access = RecordAccess::new(
            &self.pool,
            ("a resolution", Priority::Ending),
            key,
            &record[HEADER..],
        );
        self.compare_and_write(&access, None, decide, ResolveReply::Unreadable)
            .await
    }
}
