//! State of the channels of a connection, without I/O.

use std::collections::HashMap;

use tokio::sync::watch;

use crate::identity::operation::RecordKey;
use crate::store::StoreError;

/// The channels that are watched, or were a moment ago.
///
/// Watchers are counted elsewhere and come and go at any moment. So a channel is checked again whenever its last
/// watcher has left, and the next command about it is chosen then, under the lock that a new watcher takes to check
/// whether the channel is subscribed already.
#[derive(Default)]
pub(super) struct Channels {
    wanted: HashMap<String, Channel>,
    /// Channels to check.
    queue: Vec<String>,
    requests: u64,
}

struct Channel {
    key: RecordKey,
    progress: watch::Sender<Progress>,
    /// Number of the last subscription that this connection has requested.
    ///
    /// A reply to an earlier one is ignored, because the channel may have been unsubscribed in between.
    request: Option<u64>,
    /// Its subscription ended with a connection: watchers may have missed a message.
    lapsed: bool,
}

/// State of a subscription.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    Requested,
    Confirmed,
    Refused,
    /// Another node has the key.
    Moved,
    Failed(StoreError),
}

/// A command for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChannelCommand {
    Subscribe { name: String, request: u64 },
    Unsubscribe { name: String },
}

impl Progress {
    pub(super) fn is_settled(&self) -> bool {
        !matches!(self, Self::Requested)
    }
}

impl Channels {
    /// Adds a watcher of the key, which has been counted already.
    pub(super) fn join(&mut self, key: &RecordKey) -> watch::Receiver<Progress> {
        let name = key.name();
        if let Some(channel) = self.wanted.get(&name) {
            return channel.progress.subscribe();
        }
        let (progress, receiver) = watch::channel(Progress::Requested);
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

    /// The last watcher of the key left a moment ago.
    pub(super) fn left(&mut self, key: &RecordKey) {
        self.queue.push(key.name());
    }

    /// Drops the channels without watchers, and returns whether any remains. Only without a connection.
    pub(super) fn any(&mut self, watched: impl Fn(&RecordKey) -> bool) -> bool {
        self.wanted.retain(|_, channel| watched(&channel.key));
        !self.wanted.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The key of a channel on which a message arrived.
    pub(super) fn key(&self, name: &str) -> Option<RecordKey> {
        let channel = self.wanted.get(name)?;
        Some(channel.key.clone())
    }

    /// The next command to send.
    pub(super) fn next_command(
        &mut self,
        watched: impl Fn(&RecordKey) -> bool,
    ) -> Option<ChannelCommand> {
        while let Some(name) = self.queue.pop() {
            let Some(channel) = self.wanted.get_mut(&name) else {
                continue;
            };
            if !watched(&channel.key) {
                let asked = channel.request.is_some();
                self.wanted.remove(&name);
                if asked {
                    return Some(ChannelCommand::Unsubscribe { name });
                }
            } else if channel.request.is_none() {
                self.requests += 1;
                channel.request = Some(self.requests);
                let request = self.requests;
                return Some(ChannelCommand::Subscribe { name, request });
            }
        }
        None
    }

    fn asked(&mut self, name: &str, request: u64) -> Option<&mut Channel> {
        let channel = self.wanted.get_mut(name)?;
        (channel.request == Some(request)).then_some(channel)
    }

    /// The server confirms a subscription. Returns the key if its watchers may have missed a message.
    pub(super) fn confirmed(&mut self, name: &str, request: u64) -> Option<RecordKey> {
        let channel = self.asked(name, request)?;
        channel.progress.send_replace(Progress::Confirmed);
        std::mem::take(&mut channel.lapsed).then(|| channel.key.clone())
    }

    /// The server refuses a subscription. Returns the key if it has watchers of an earlier connection.
    pub(super) fn refused(&mut self, name: &str, request: u64) -> Option<RecordKey> {
        let channel = self.asked(name, request)?;
        channel.progress.send_replace(Progress::Refused);
        let channel = self.wanted.remove(name)?;
        channel.lapsed.then_some(channel.key)
    }

    /// Another node has the channel. Returns its key.
    pub(super) fn moved(&mut self, name: &str, request: u64) -> Option<RecordKey> {
        let channel = self.asked(name, request)?;
        channel.progress.send_replace(Progress::Moved);
        self.wanted.remove(name).map(|channel| channel.key)
    }

    /// The connection is gone: all channels must be subscribed again.
    pub(super) fn lost(&mut self) {
        self.queue = self.wanted.keys().cloned().collect();
        for channel in self.wanted.values_mut() {
            channel.request = None;
            if matches!(*channel.progress.borrow(), Progress::Confirmed) {
                channel.lapsed = true;
            }
            channel.progress.send_replace(Progress::Requested);
        }
    }

    /// No connection can be made for now: new watchers receive the error. Lapsed channels are subscribed again later.
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
