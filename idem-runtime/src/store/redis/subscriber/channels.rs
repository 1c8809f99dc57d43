//! Which channels a connection is to hear: decided here, sent elsewhere.

use std::collections::HashMap;

use tokio::sync::watch;

use crate::identity::operation::RecordKey;
use crate::store::StoreError;

/// The channels that somebody waits for, or did a moment ago.
///
/// Who watches is counted elsewhere and may change at any moment. Therefore a channel is looked at
/// again whenever its last watcher has left, and what it needs is decided then, under the lock that
/// a newcomer takes to ask whether it is heard already.
#[derive(Default)]
pub(super) struct Channels {
    wanted: HashMap<String, Channel>,
    /// Channels to look at.
    queue: Vec<String>,
    requests: u64,
}

struct Channel {
    key: RecordKey,
    progress: watch::Sender<Progress>,
    /// The subscription that this connection was asked for. An answer to an earlier one says
    /// nothing, since the channel may have been given up in between.
    request: Option<u64>,
    /// It was heard, and then not: messages may be lost, and somebody may have waited for them.
    lapsed: bool,
}

/// How far a subscription is.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    Asked,
    Heard,
    Refused,
    /// Another node has the key.
    Moved,
    Failed(StoreError),
}

/// What a connection is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Subscribe { name: String, request: u64 },
    Unsubscribe { name: String },
}

impl Progress {
    pub(super) fn is_settled(&self) -> bool {
        !matches!(self, Self::Asked)
    }
}

impl Channels {
    /// Somebody watches the key, and has been counted.
    pub(super) fn join(&mut self, key: &RecordKey) -> watch::Receiver<Progress> {
        let name = key.name();
        if let Some(channel) = self.wanted.get(&name) {
            return channel.progress.subscribe();
        }
        let (progress, receiver) = watch::channel(Progress::Asked);
        let channel = Channel {
            key: key.clone(),
            progress,
            request: None,
            lapsed: false,
        };
        self.queue.push(name.clone());
        self.wanted.insert(name, channel);
        receiver
    }

    /// Nobody watched the key any more a moment ago.
    pub(super) fn left(&mut self, key: &RecordKey) {
        self.queue.push(key.name());
    }

    /// Forgets what nobody watches, and says whether anything remains. For as long as there is no
    /// connection.
    pub(super) fn any(&mut self, watched: impl Fn(&RecordKey) -> bool) -> bool {
        self.wanted.retain(|_, channel| watched(&channel.key));
        !self.wanted.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The key of a channel that something was heard on.
    pub(super) fn key(&self, name: &str) -> Option<RecordKey> {
        let channel = self.wanted.get(name)?;
        Some(channel.key.clone())
    }

    /// What to send next.
    pub(super) fn next_order(&mut self, watched: impl Fn(&RecordKey) -> bool) -> Option<Order> {
        while let Some(name) = self.queue.pop() {
            let Some(channel) = self.wanted.get_mut(&name) else {
                continue;
            };
            if !watched(&channel.key) {
                let asked = channel.request.is_some();
                self.wanted.remove(&name);
                if asked {
                    return Some(Order::Unsubscribe { name });
                }
            } else if channel.request.is_none() {
                self.requests += 1;
                channel.request = Some(self.requests);
                let request = self.requests;
                return Some(Order::Subscribe { name, request });
            }
        }
        None
    }

    fn asked(&mut self, name: &str, request: u64) -> Option<&mut Channel> {
        let channel = self.wanted.get_mut(name)?;
        (channel.request == Some(request)).then_some(channel)
    }

    /// The server confirms a subscription. Gives the key, if somebody may have missed something.
    pub(super) fn confirmed(&mut self, name: &str, request: u64) -> Option<RecordKey> {
        let channel = self.asked(name, request)?;
        channel.progress.send_replace(Progress::Heard);
        std::mem::take(&mut channel.lapsed).then(|| channel.key.clone())
    }

    /// The server refuses a subscription.
    pub(super) fn refused(&mut self, name: &str, request: u64) {
        if let Some(channel) = self.asked(name, request) {
            channel.progress.send_replace(Progress::Refused);
            self.wanted.remove(name);
        }
    }

    /// Another node has the channel. Gives its key.
    pub(super) fn moved(&mut self, name: &str, request: u64) -> Option<RecordKey> {
        let channel = self.asked(name, request)?;
        channel.progress.send_replace(Progress::Moved);
        self.wanted.remove(name).map(|channel| channel.key)
    }

    /// The connection is gone: everything is to be asked for again, on another.
    pub(super) fn lost(&mut self) {
        self.queue = self.wanted.keys().cloned().collect();
        for channel in self.wanted.values_mut() {
            channel.request = None;
            if matches!(*channel.progress.borrow(), Progress::Heard) {
                channel.lapsed = true;
            }
            channel.progress.send_replace(Progress::Asked);
        }
    }

    /// There is no other connection for now: whoever begins to watch is told so. Who has begun
    /// before is asked for again later.
    pub(super) fn failed(&mut self, error: &StoreError) {
        self.wanted.retain(|_, channel| {
            if !channel.lapsed {
                let failed = Progress::Failed(error.clone());
                channel.progress.send_replace(failed);
            }
            channel.lapsed
        });
    }
}

#[cfg(test)]
mod tests;
