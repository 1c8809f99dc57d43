//! Completion without a script, on servers with compare-and-set: `SET … IFEQ`.
//!
//! Only its owner writes a claim, and the owner knows each byte of it except the mark of a watcher. So the owner can
//! complete an unwatched claim by comparing the stored bytes with the claim. Where they differ, the script decides,
//! and notifies the watchers.

use std::time::Duration;

use redis::Value;

use crate::record::Header;
use crate::store::StoreError;
use crate::store::redis::arguments::{decimal, millis};
use crate::store::redis::core::RedisCore;
use crate::store::redis::durability::WriteConcern;
use crate::store::redis::failure::Failure;
use crate::store::redis::link::RoutedCommand;
use crate::store::redis::wire::Words;

impl RedisCore {
    /// Replaces the claim with the record. Returns false if the stored bytes differ; then nothing has changed.
    pub(super) async fn compare_and_set(
        &self,
        name: &str,
        claim: &Header,
        retain: Duration,
        record: &[u8],
    ) -> Result<bool, StoreError> {
        let set = |words: &mut Words<'_>| set_if_equal(words, name, claim, retain, record);
        let command = RoutedCommand::on_key(name, &set);
        compared(self.link.send(&command, WriteConcern::Replicated).await)
    }
}

/// Whether a record completes a claim as most do: by the same owner, with the fence, the attempts, the fingerprint and
/// the types of the claim. The script of `complete_own.lua` compares the same; another record is settled by the script
/// for all cases, because it may be another request's, or lack what the claim has.
pub(super) fn completes(claim: &Header, done: &Header) -> bool {
    let of = |header: &Header| {
        let Header {
            owner,
            fence,
            attempts,
            fingerprint,
            types,
            ..
        } = *header;
        (owner, fence, attempts, fingerprint, types)
    };
    of(claim) == of(done)
}

/// Writes the command.
pub(super) fn set_if_equal(
    words: &mut Words<'_>,
    name: &str,
    claim: &Header,
    retain: Duration,
    record: &[u8],
) {
    let retain = decimal(millis(retain));
    words.command(&[
        &[b"SET", name.as_bytes(), record],
        &[b"IFEQ", &claim.encode(), b"PX", retain.as_bytes()],
    ]);
}

/// Whether the reply is that of a write.
pub(super) fn compared(reply: Result<Value, Failure>) -> Result<bool, StoreError> {
    match reply {
        Ok(reply) => Ok(reply == Value::Okay),
        // A full memory, a missing right, a slot that has moved: the script receives the same error, or succeeds.
        Err(Failure::Reply(error)) if error.code().is_some() => Ok(false),
        Err(failure) => Err(failure.store_error("a completion")),
    }
}
