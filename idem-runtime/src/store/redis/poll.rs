//! Polls of a waiting call.
//!
//! A watcher usually reads after the notification of a completion, and a plain `GETRANGE` reads the answer: a script
//! that has not run for a while takes the server measurably longer. `GETRANGE` does not return the remaining life of
//! the answer; see [`Store::poll`]. A script reads any other value, and marks a claim so that its end is published.
//!
//! [`Store::poll`]: crate::store::Store::poll

use super::core::RedisCore;
use crate::record::{Record, State};
use crate::store::{ReadReply, RecordKey, StoreError, StoreErrorKind};

impl RedisCore {
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
        if is_unmarked {
            self.read_and_mark(key).await
        } else {
            // A read without a mark also works where writes are paused: while a server hands over to its replica.
            self.read(key).await
        }
    }
}
