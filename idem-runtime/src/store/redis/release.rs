//! Releases of claims.

use super::core::RedisCore;
use super::reply::unexpected;
use crate::store::{HEADER, Journal, Owner, RecordKey, ReleaseReply, Remains, StoreError};

impl RedisCore {
    pub(super) async fn release(
        &self,
        key: &RecordKey,
        owner: &Owner,
        remains: Remains,
    ) -> Result<ReleaseReply, StoreError> {
        self.send_release(key, &[owner.as_bytes(), code(remains)])
            .await
    }

    /// The same, with the journal that the record keeps.
    pub(super) async fn release_with_journal(
        &self,
        key: &RecordKey,
        owner: &Owner,
        remains: Remains,
        journal: &Journal,
        seen: Option<&Journal>,
    ) -> Result<ReleaseReply, StoreError> {
        let layout = [journal.kind().layout()];
        let journal = journal.as_bytes();
        self.check_size(HEADER + journal.len())?;
        let seen = seen.map(|seen| &seen.as_bytes()[..]);
        let all = [
            owner.as_bytes(),
            code(remains),
            journal,
            &layout,
            seen.unwrap_or_default(),
        ];
        let arguments = if seen.is_some() { &all[..] } else { &all[..4] };
        self.send_release(key, arguments).await
    }

    async fn send_release(
        &self,
        key: &RecordKey,
        arguments: &[&[u8]],
    ) -> Result<ReleaseReply, StoreError> {
        let answer = self
            .run("a release", &self.scripts.release, &key.name(), arguments)
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

/// As the script reads it.
fn code(remains: Remains) -> &'static [u8] {
    match remains {
        Remains::Request => b"0",
        Remains::Attempt => b"1",
        Remains::Nothing => b"2",
    }
}
