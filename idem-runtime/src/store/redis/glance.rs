//! What a call that waits looks at.
//!
//! It was told, most of the time, that the other call has finished, and a plain `GETRANGE` shows its answer, if that is
//! not too large: a script, which nobody has run for a while, takes the server longer by a tenth of all that this call
//! has waited since. How long the answer will still be kept it does not say; see [`Store::glance`].
//! Whatever else stands there, a script reads; and of a claim it sees to it that its end is told.
//!
//! [`Store::glance`]: crate::store::Store::glance

use std::future::poll_fn;
use std::pin::pin;

use super::Inner;
use crate::record::{Record, State};
use crate::store::{ReadReply, RecordKey, StoreError, StoreErrorKind, Watch};

impl Inner {
    /// Subscribes, and marks the claim that is there. Both have been done when this answers, in whichever
    /// order: what ended between them is seen by whoever looks then.
    pub(super) async fn watch(&self, key: &RecordKey) -> Result<Option<Watch>, StoreError> {
        let (name, script) = (key.name(), &self.scripts.mark);
        // Whoever waits looks soon, and finds out what is wrong here. Nothing is read yet: an answer that is
        // there already may be large.
        let mut mark = pin!(Self::run(&self.own, "a mark", script, &name, &[]));
        let mut is_marked = false;
        let mut subscribing = pin!(self.subscribers.watch(key));
        let watch = poll_fn(|context| {
            let subscribed = subscribing.as_mut().poll(context);
            // Not where it is known that nobody can be told.
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
            // Nothing, or an empty string, or something of another type: the script tells them apart.
            Ok(None) | Err(_) => {}
        }
        if is_unmarked {
            self.wait(key).await
        } else {
            // This goes on where nobody may write: while a server hands over to its replica.
            self.read(key).await
        }
    }
}
