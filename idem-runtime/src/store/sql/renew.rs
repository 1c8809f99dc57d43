//! A renewal: one statement, unless the record has changed.

use std::sync::Arc;

use super::argument::Argument;
use super::backend::SqlDriver;
use super::columns::{HeaderColumns, life_us};
use super::compare_and_write::{RecordAccess, RecordWrite};
use super::pool::ConnectionPool;
use super::priority::Priority;
use super::state::SqlStoreState;
use crate::identity::operation::RecordKey;
use crate::record::{Header, transition};
use crate::store::{Current, RenewReply, StoreError};

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn renew_on(
        &self,
        pool: &Arc<ConnectionPool<B>>,
        key: &RecordKey,
        claim: &Header,
    ) -> Result<RenewReply, StoreError> {
        let access = RecordAccess::new(pool, ("a renewal", Priority::Ending), key);
        let columns = HeaderColumns::new(claim);
        let arguments = [
            Argument::Bytes(&access.primary_key),
            Argument::Int(life_us(claim.retain)),
            columns.owner(),
            columns.fence(),
            columns.retain_ms(),
        ];
        let statement = &self.statements.renew;
        let answer = access.run(statement, &arguments).await?;
        if answer.affected > 0 {
            return Ok(RenewReply::Renewed);
        }
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::renew(current, claim);
            let write = write.map(|header| RecordWrite::header(header, current));
            (reply, write)
        };
        let unreadable = RenewReply::Unreadable;
        Box::pin(self.compare_and_write(&access, None, decide, unreadable)).await
    }
}
