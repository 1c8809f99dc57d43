//! Resolutions by an operator.

use bytes::Bytes;

use super::arguments::{decimal, millis};
use super::core::RedisCore;
use super::notify::channel;
use super::reply::unexpected;
use crate::store::{Header, Journal, RecordKey, ResolveReply, StoreError};

impl RedisCore {
    pub(super) async fn resolve(
        &self,
        key: &RecordKey,
        (seen, journal): (&Header, Option<&Journal>),
        record: &Bytes,
    ) -> Result<ResolveReply, StoreError> {
        let new = match Header::decode(record) {
            Ok(new) => new,
            Err(error) => return Ok(ResolveReply::Unreadable(error)),
        };
        let retain = decimal(millis(new.retain));
        let channel = channel(key.prefix());
        let seen = seen.encode();
        let arguments: [&[u8]; 4] = [&seen, record, retain.as_bytes(), channel.as_bytes()];
        let journal = journal.map(|journal| &journal.as_bytes()[..]);
        let arguments: Vec<_> = arguments.into_iter().chain(journal).collect();
        let answer = self
            .run(
                "a resolution",
                &self.scripts.resolve,
                &key.name(),
                &arguments,
            )
            .await?;
        if let Some(error) = answer.unreadable() {
            return Ok(ResolveReply::Unreadable(error));
        }
        match answer.code {
            b'C' => Ok(ResolveReply::Resolved),
            b'S' => Ok(ResolveReply::Changed),
            b'B' => Ok(ResolveReply::Running {
                lease_left: answer.millis()?,
            }),
            b'N' => Ok(ResolveReply::Absent),
            _ => Err(unexpected()),
        }
    }
}
