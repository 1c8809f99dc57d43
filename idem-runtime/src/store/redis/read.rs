//! Reads: of a record, of the answer that another command has found, of a waiting call, and of a copy.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use super::link::RoutedCommand;
use super::script::{Script, ScriptReply, unexpected};
use super::server::WriteConcern;
use super::store::RedisCore;
use super::topology::Topology;
use super::wire::{Words, decimal};
use crate::identity::fingerprint::Fingerprint;
use crate::store::read_cache::Copied;
use crate::store::{
    ReadReply, Record, RecordKey, State, StoreError, StoreErrorKind, Unreadable, Watch,
};

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

    /// Reads a record, on the thread of the engine.
    pub(super) async fn read(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        self.read_by(&self.scripts.read, key).await
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

    /// Reads a record without a script. `None` if the key is absent, or has an empty string.
    ///
    /// The server sends one byte more than this store accepts at most; then its length is queried.
    async fn read_plain(
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

    /// The bytes of a `D` or `G` reply, and their remaining life. `None`: it is gone since.
    async fn stored(
        &self,
        topology: &Topology,
        name: &str,
        answer: ScriptReply,
    ) -> Result<Option<(Bytes, Duration)>, StoreError> {
        let left = answer.millis()?;
        let bytes = if answer.code == b'D' {
            Some(answer.record()?)
        } else {
            self.check_size(answer.size()?)?;
            self.read_plain(topology, name).await?
        };
        Ok(bytes.map(|bytes| (bytes, left)))
    }

    /// The record of a `D` or `G` reply. `None`: it has changed since, and the script is sent again.
    pub(super) async fn read_answer(
        &self,
        name: &str,
        answer: ScriptReply,
        asked: Fingerprint,
    ) -> Result<Option<(Result<Record, Unreadable>, Duration)>, StoreError> {
        let is_whole = answer.code == b'D';
        let stored = self.stored(&self.link, name, answer).await?;
        let stored = stored.map(|(bytes, left)| (Record::decode(bytes), left));
        Ok(stored.filter(|(record, _)| match record {
            // The record may have expired before the second read, and another call may have claimed the key.
            Ok(done) if !is_whole => {
                matches!(done.header.state, State::Done { .. })
                    && done.header.fingerprint.matches(asked)
            }
            _ => true,
        }))
    }

    /// Reads for a waiting call.
    ///
    /// A watcher usually reads after the notification of a completion, and a plain `GETRANGE` reads the answer: a script
    /// that has not run for a while takes the server measurably longer. `GETRANGE` does not return the remaining life of
    /// the answer; see [`Store::poll`]. A script reads any other value, and marks a claim so that its end is published.
    ///
    /// [`Store::poll`]: crate::store::Store::poll
    pub(super) async fn poll(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        let mut is_unmarked = false;
        match self.read_plain(&self.background, &key.name()).await {
            Ok(Some(bytes)) => {
                is_unmarked = bytes.starts_with(b"2P");
                if let Ok(record) = Record::decode(bytes)
                    && matches!(record.header.state, State::Done { .. })
                {
                    let left = record.header.retain;
                    return Ok(ReadReply::Found { record, left });
                }
            }
            Err(error) if error.is_transient() || error.kind() == StoreErrorKind::TooLarge => {
                return Err(error);
            }
            // No record, an empty string or a value of another type: the script distinguishes them.
            Ok(None) | Err(_) => {}
        }
        // A read without a mark also works where writes are paused: while a server hands over to its replica.
        let scripts = &self.scripts;
        let script = if is_unmarked {
            &scripts.wait
        } else {
            &scripts.read
        };
        self.read_by(script, key).await
    }

    /// Watches a key: subscribes, and marks the stored claim.
    ///
    /// Both are done when this returns, in either order: the read that follows finds a claim that ended in between.
    pub(super) async fn watch(&self, key: &RecordKey) -> Result<Option<Watch>, StoreError> {
        let (name, script) = (key.name(), &self.scripts.mark);
        // A failed mark is ignored: the read that follows fails for the same reason. The mark reads nothing, because a
        // stored answer may be large.
        let mut mark = pin!(self.background.run("a mark", script, &name, &[]));
        let mut is_marked = false;
        let mut subscribing = pin!(self.subscribers.watch(key));
        let watch = poll_fn(|context| {
            let subscribed = subscribing.as_mut().poll(context);
            // Not after a failed subscription: no notification could arrive.
            if subscribed.is_pending() && !is_marked {
                is_marked = mark.as_mut().poll(context).is_ready();
            }
            subscribed
        })
        .await?;
        if watch.is_some() && !is_marked {
            let _ = mark.await;
        }
        Ok(watch)
    }

    /// Reads the copy of another store's record.
    pub(super) async fn look(
        &self,
        topology: &Topology,
        key: &RecordKey,
    ) -> Result<Copied, StoreError> {
        let (name, script) = (key.name(), &self.scripts.look);
        let answer = topology
            .run("looking for a copy", script, &name, &[])
            .await?;
        if answer.unreadable().is_some() || answer.code == b'N' {
            return Ok(None);
        }
        if !matches!(answer.code, b'D' | b'G') {
            return Err(unexpected());
        }
        let stored = self.stored(topology, &name, answer).await?;
        Ok(stored.and_then(|(bytes, left)| Some((Record::decode(bytes).ok()?, left))))
    }
}
