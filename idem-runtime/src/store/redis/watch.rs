//! Watches of a key: a subscription, and a mark on the stored claim.

use std::future::poll_fn;
use std::pin::pin;

use super::core::RedisCore;
use crate::store::{RecordKey, StoreError, Watch};

impl RedisCore {
    /// Subscribes, and marks the stored claim.
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
}
