//! Reads of records, up to the size that the store accepts.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use super::arguments::decimal;
use super::core::RedisCore;
use super::durability::WriteConcern;
use super::link::RoutedCommand;
use super::reply::{ScriptReply, unexpected};
use super::script::Script;
use super::topology::Topology;
use super::wire::Words;
use crate::identity::fingerprint::Fingerprint;
use crate::store::{ReadReply, Record, RecordKey, State, StoreError, StoreErrorKind, Unreadable};

impl RedisCore {
    /// Refuses a record of more bytes than this store accepts.
    pub(super) fn check_size(&self, bytes: usize) -> Result<(), StoreError> {
        if bytes <= self.max_record_bytes {
            return Ok(());
        }
        Err(StoreError::new(
            StoreErrorKind::TooLarge,
            format!(
                "the record has {bytes} bytes; `max_record_bytes` is {}",
                self.max_record_bytes
            ),
        ))
    }

    /// Reads a record without a script. `None` if the key is absent, or has an empty string.
    ///
    /// The server sends one byte more than this store accepts at most; then its length is queried.
    pub(super) async fn read_plain(
        &self,
        topology: &Topology,
        name: &str,
    ) -> Result<Option<Bytes>, StoreError> {
        // One byte more than the limit, to detect a larger record.
        let most = decimal(self.max_record_bytes as u64);
        let get = |words: &mut Words<'_>| {
            words.command(&[&[b"GETRANGE", name.as_bytes(), b"0", most.as_bytes()]]);
        };
        let bytes = match topology
            .send(&RoutedCommand::on_key(name, &get), WriteConcern::Local)
            .await
        {
            Ok(Value::BulkString(bytes)) => bytes,
            Ok(_) => return Err(unexpected()),
            Err(failure) => return Err(failure.store_error("reading an answer")),
        };
        if bytes.len() <= self.max_record_bytes {
            return Ok(Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty()));
        }
        let length = |words: &mut Words<'_>| words.command(&[&[b"STRLEN", name.as_bytes()]]);
        let length = RoutedCommand::on_key(name, &length);
        let length = match Box::pin(topology.send(&length, WriteConcern::Local)).await {
            Ok(Value::Int(length)) => usize::try_from(length).unwrap_or_default(),
            // A lower bound of the length.
            _ => bytes.len(),
        };
        self.check_size(length.max(bytes.len())).map(|()| None)
    }

    /// The record of a `D` or `G` reply. `None`: it has changed since, and the script is sent again.
    pub(super) async fn read_answer(
        &self,
        name: &str,
        answer: ScriptReply,
        asked: Fingerprint,
    ) -> Result<Option<(Result<Record, Unreadable>, Duration)>, StoreError> {
        let left = answer.millis()?;
        if answer.code == b'D' {
            return Ok(Some((Record::decode(answer.record()?), left)));
        }
        self.check_size(answer.size()?)?;
        let Some(bytes) = self.read_plain(&self.link, name).await? else {
            return Ok(None);
        };
        let record = Record::decode(bytes);
        match &record {
            // The record may have expired before the second read, and another call may have claimed the key.
            Ok(done) if !matches!(done.header.state, State::Done { .. }) => Ok(None),
            Ok(done) if !done.header.fingerprint.matches(asked) => Ok(None),
            _ => Ok(Some((record, left))),
        }
    }

    /// Reads a record, on the thread of the engine.
    pub(super) async fn read(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        self.read_by(&self.scripts.read, key).await
    }

    /// Reads a record for a watcher, and marks a claim as watched.
    pub(super) async fn read_and_mark(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        self.read_by(&self.scripts.wait, key).await
    }

    async fn read_by(&self, script: &Script, key: &RecordKey) -> Result<ReadReply, StoreError> {
        let most = decimal(self.max_record_bytes as u64);
        let arguments: [&[u8]; 1] = [most.as_bytes()];
        let answer = self
            .background
            .run("a read", script, &key.name(), &arguments)
            .await?;
        if let Some(error) = answer.unreadable() {
            return Ok(ReadReply::Unreadable(error));
        }
        match answer.code {
            b'N' => Ok(ReadReply::Absent),
            b'L' => self.check_size(answer.size()?).and(Err(unexpected())),
            b'D' => {
                // A value of another program may have no expiry.
                let left = answer.millis().unwrap_or_default();
                Ok(match Record::decode(answer.record()?) {
                    Ok(record) => ReadReply::Found { record, left },
                    Err(error) => ReadReply::Unreadable(error),
                })
            }
            _ => Err(unexpected()),
        }
    }
}
