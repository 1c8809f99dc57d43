//! Reads of a waiting call.
//!
//! The call was usually notified that the other call has finished, and a plain `GETRANGE` reads the answer, if that is
//! not too large. A script that has not run for a while takes the server measurably longer. `GETRANGE` does not
//! return the remaining life of the answer; see [`Store::glance`]. A script reads any other value, and marks a claim
//! so that its end is notified.
//!
//! [`Store::glance`]: crate::store::Store::glance

use std::future::poll_fn;
use std::pin::pin;

use super::Inner;
use crate::record::{Record, State};
use crate::store::{ReadReply, RecordKey, StoreError, StoreErrorKind, Watch};

impl Inner {
    /// Subscribes, and marks the stored claim. Both are done when this returns, in either order: an end
    /// between the two is found by the read that follows.
    pub(super) async fn watch(&self, key: &RecordKey) -> Result<Option<Watch>, StoreError> {
        let (name, script) = (key.name(), &self.scripts.mark);
        // A failed mark is ignored: the watcher reads soon, and then meets the same error. Nothing is read yet,
        // because a stored answer may be large.
        let mut mark = pin!(Self::run(&self.own, "a mark", script, &name, &[]));
        let mut is_marked = false;
        let mut subscribing = pin!(self.subscribers.watch(key));
        let watch = poll_fn(|context| {
            let subscribed = subscribing.as_mut().poll(context);
            // Not where the subscription has already failed: no notification could arrive.
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

    pub(super) async fn glance(&self, key: &RecordKey) -> Result<ReadReply, StoreError> {
        let mut is_unmarked = false;
        match self.large(&self.own, &key.name()).await {
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
            // No record, an empty string, or a value of another type: the script distinguishes them.
            Ok(None) | Err(_) => {}
        }
        if is_unmarked {
            self.wait(key).await
        } else {
            // A read without a mark also works where writes are paused: while a server hands over to its replica.
            self.read(key).await
        }
    }
}
