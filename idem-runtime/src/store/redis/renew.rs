//! Lease renewals.

use super::arguments::{decimal, millis};
use super::core::RedisCore;
use super::reply::unexpected;
use crate::store::{Header, RecordKey, RenewReply, StoreError};

impl RedisCore {
    pub(super) async fn renew(
        &self,
        key: &RecordKey,
        claim: &Header,
    ) -> Result<RenewReply, StoreError> {
        let retain = decimal(millis(claim.retain));
        let arguments: [&[u8]; 2] = [&claim.encode(), retain.as_bytes()];
        let answer = self
            .background
            .run("a renewal", &self.scripts.renew, &key.name(), &arguments)
            .await?;
        if let Some(error) = answer.unreadable() {
            return Ok(RenewReply::Unreadable(error));
        }
        match answer.code {
            b'C' => Ok(RenewReply::Renewed),
            b'L' => Ok(RenewReply::Reasserted),
            b'S' => Ok(RenewReply::Lost),
            _ => Err(unexpected()),
        }
    }
}
