//! Completions: by compare-and-set, staged, or by script.

mod compare_and_set;
mod large;

use bytes::Bytes;

use self::large::LARGE;
use super::arguments::{decimal, millis};
use super::core::RedisCore;
use super::reply::unexpected;
use crate::store::{CompleteReply, Header, RecordKey, StoreError};

impl RedisCore {
    pub(super) async fn complete(
        &self,
        key: &RecordKey,
        claim: Option<&Header>,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        // Only the retain time is kept: this future is part of the future of each call.
        let retain = match Header::decode(record) {
            Ok(done) => done.retain,
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let name = key.name();
        // A record with a journal is in the way of both shorter forms.
        let has_journal = claim.is_some_and(|claim| !claim.journal.is_none());
        if let Some(claim) = claim.filter(|_| self.compares && !has_journal)
            && self.compare_and_set(&name, claim, retain, record).await?
        {
            return Ok(CompleteReply::Stored { late: false });
        }
        // Boxed: larger, and seldom needed.
        if record.len() >= LARGE
            && !has_journal
            && Box::pin(self.complete_large(key, &name, record)).await?
        {
            return Ok(CompleteReply::Stored { late: false });
        }
        let ttl = decimal(millis(retain));
        let arguments: [&[u8]; 2] = [record, ttl.as_bytes()];
        loop {
            let answer = self
                .run("a completion", &self.scripts.complete, &name, &arguments)
                .await?;
            if let Some(error) = answer.unreadable() {
                return Ok(CompleteReply::Unreadable(error));
            }
            return Ok(match answer.code {
                b'C' => CompleteReply::Stored {
                    late: answer.number()? == 1,
                },
                b'S' => CompleteReply::Superseded {
                    lease_left: answer.millis()?,
                },
                b'M' => CompleteReply::Mismatch,
                b'D' | b'G' => {
                    let asked = Header::decode(record)
                        .map_err(|_| unexpected())?
                        .fingerprint;
                    match Box::pin(self.read_answer(&name, answer, asked)).await? {
                        Some((Ok(record), left)) => CompleteReply::Adopted { record, left },
                        Some((Err(error), _)) => CompleteReply::Unreadable(error),
                        None => continue,
                    }
                }
                _ => return Err(unexpected()),
            });
        }
    }
}
