//! Completions: by compare-and-set, staged, or by script.

mod compare_and_set;
mod fast;
mod large;

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use self::compare_and_set::completes;
pub(super) use self::fast::Completing;
use self::large::LARGE;
use super::arguments::{decimal, millis};
use super::core::RedisCore;
use super::failure::Failure;
use super::reply::unexpected;
use crate::store::{CompleteReply, Header, RecordKey, StoreError};

impl RedisCore {
    pub(super) async fn complete(
        &self,
        key: &RecordKey,
        claim: Option<&Header>,
        record: &Bytes,
    ) -> Result<CompleteReply, StoreError> {
        // Of the header little is kept: this future is part of the future of each call.
        let (retain, completes) = match Header::decode(record) {
            Ok(done) => (
                done.retain,
                claim.is_some_and(|claim| completes(claim, &done)),
            ),
            Err(error) => return Ok(CompleteReply::Unreadable(error)),
        };
        let name = key.name();
        // A record with a journal is in the way of both shorter forms.
        let has_journal = claim.is_some_and(|claim| !claim.journal.is_none());
        if let Some(claim) = claim.filter(|_| self.compares && completes && !has_journal)
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
        self.complete_by_script(&name, retain, record, None).await
    }

    /// Completes by the script, whose reply may have arrived already.
    async fn complete_by_script(
        &self,
        name: &str,
        retain: Duration,
        record: &Bytes,
        mut reply: Option<Result<Value, Failure>>,
    ) -> Result<CompleteReply, StoreError> {
        let (what, script) = ("a completion", &self.scripts.complete);
        let ttl = decimal(millis(retain));
        let arguments: [&[u8]; 2] = [record, ttl.as_bytes()];
        loop {
            let answer = match reply.take() {
                Some(reply) => {
                    let answer = self.link.replied(what, script, name, &arguments, reply);
                    answer.await?
                }
                None => self.run(what, script, name, &arguments).await?,
            };
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
                    match Box::pin(self.read_answer(name, answer, asked)).await? {
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
