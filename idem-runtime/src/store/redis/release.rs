//! Releases of claims.

use super::core::RedisCore;
use super::reply::unexpected;
use crate::store::{Owner, RecordKey, ReleaseReply, Remains, StoreError};

impl RedisCore {
    pub(super) async fn release(
        &self,
        key: &RecordKey,
        owner: &Owner,
        remains: Remains,
    ) -> Result<ReleaseReply, StoreError> {
        let remains: &[u8] = match remains {
            Remains::Request => b"0",
            Remains::Attempt => b"1",
            Remains::Nothing => b"2",
        };
        let arguments: [&[u8]; 2] = [owner.as_bytes(), remains];
        let answer = self
            .run("a release", &self.scripts.release, &key.name(), &arguments)
            .await?;
        if let Some(error) = answer.unreadable() {
            return Ok(ReleaseReply::Unreadable(error));
        }
        match answer.code {
            b'C' => Ok(ReleaseReply::Released),
            b'S' => Ok(ReleaseReply::Superseded),
            b'N' => Ok(ReleaseReply::Absent),
            _ => Err(unexpected()),
        }
    }
}
