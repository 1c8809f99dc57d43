//! Places where senders wait for their replies, and their tasks to wake.

use std::mem;
use std::task::{Poll, Waker};

use redis::{RedisResult, Value};

/// The reply to one command, or to each of two.
pub(crate) struct Replies {
    pub(crate) first: Value,
    pub(crate) second: Option<Value>,
}

/// The place of a sender. It is reused after the sender has left, and its command has no reply any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(u32);

/// The places of a connection.
#[derive(Default)]
pub(super) struct ReplySlots {
    slots: Vec<ReplySlot>,
    free: Vec<SlotId>,
}

enum ReplySlot {
    Free,
    /// The command is queued, or some of its replies are outstanding.
    Waiting {
        waker: Option<Waker>,
        first: Option<Value>,
    },
    Replied(RedisResult<Replies>),
    /// The sender has left. The place is free again with the last reply.
    Abandoned,
}

impl ReplySlots {
    pub(super) fn add(&mut self) -> SlotId {
        let waiting = ReplySlot::Waiting {
            waker: None,
            first: None,
        };
        if let Some(id) = self.free.pop() {
            self.slots[id.at()] = waiting;
            return id;
        }
        self.slots.push(waiting);
        SlotId(u32::try_from(self.slots.len() - 1).expect("fewer senders than memory holds"))
    }

    /// Takes the replies, which frees the place; or replaces the waker, and returns the former one.
    pub(super) fn poll(
        &mut self,
        id: SlotId,
        waker: &Waker,
    ) -> (Poll<RedisResult<Replies>>, Option<Waker>) {
        if let ReplySlot::Waiting { waker: former, .. } = &mut self.slots[id.at()] {
            let is_known = former
                .as_ref()
                .is_some_and(|former| former.will_wake(waker));
            let replaced = (!is_known).then(|| former.replace(waker.clone()));
            return (Poll::Pending, replaced.flatten());
        }
        match self.release(id) {
            ReplySlot::Replied(replies) => (Poll::Ready(replies), None),
            _ => unreachable!("a sender polls its own place until it has its replies"),
        }
    }

    /// The sender leaves. Returns the waker of its place.
    pub(super) fn abandon(&mut self, id: SlotId) -> Option<Waker> {
        let slot = &mut self.slots[id.at()];
        if let ReplySlot::Waiting { waker, .. } = slot {
            let waker = waker.take();
            *slot = ReplySlot::Abandoned;
            return waker;
        }
        self.release(id);
        None
    }

    /// Whether the sender can take its result.
    pub(super) fn has_replied(&self, id: SlotId) -> bool {
        matches!(self.slots[id.at()], ReplySlot::Replied(_))
    }

    /// Whether the sender has left.
    pub(super) fn has_left(&self, id: SlotId) -> bool {
        matches!(self.slots[id.at()], ReplySlot::Abandoned)
    }

    /// Whether the sender has left. Then its place is free now.
    pub(super) fn free_abandoned(&mut self, id: SlotId) -> bool {
        let has_left = self.has_left(id);
        if has_left {
            self.release(id);
        }
        has_left
    }

    /// Adds a reply, the `last` one or not.
    pub(super) fn reply(&mut self, id: SlotId, value: Value, last: bool) -> Option<Waker> {
        match &mut self.slots[id.at()] {
            ReplySlot::Waiting { first, .. } if !last => {
                *first = Some(value);
                None
            }
            ReplySlot::Waiting { first, .. } => {
                let replies = match first.take() {
                    Some(first) => Replies {
                        first,
                        second: Some(value),
                    },
                    None => Replies {
                        first: value,
                        second: None,
                    },
                };
                self.end(id, Ok(replies))
            }
            ReplySlot::Abandoned if last => {
                self.release(id);
                None
            }
            _ => None,
        }
    }

    /// Gives the sender its result; none is expected any more.
    pub(super) fn end(&mut self, id: SlotId, result: RedisResult<Replies>) -> Option<Waker> {
        match &mut self.slots[id.at()] {
            slot @ ReplySlot::Waiting { .. } => {
                match mem::replace(slot, ReplySlot::Replied(result)) {
                    ReplySlot::Waiting { waker, .. } => waker,
                    _ => None,
                }
            }
            ReplySlot::Abandoned => {
                self.release(id);
                None
            }
            ReplySlot::Free | ReplySlot::Replied(_) => None,
        }
    }

    fn release(&mut self, id: SlotId) -> ReplySlot {
        self.free.push(id);
        mem::replace(&mut self.slots[id.at()], ReplySlot::Free)
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl SlotId {
    fn at(self) -> usize {
        self.0 as usize
    }
}

/// Tasks that are woken when this is dropped; a waker that panics keeps no other one from it.
#[derive(Default)]
pub(super) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Wakes all tasks, and keeps the memory.
    pub(super) fn wake(&mut self) {
        self.0.reverse();
        while let Some(waker) = self.0.pop() {
            waker.wake();
        }
    }
}

impl Extend<Waker> for Wakers {
    fn extend<I: IntoIterator<Item = Waker>>(&mut self, wakers: I) {
        self.0.extend(wakers);
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// A task that panics when it is woken, or not.
    struct Counting(AtomicUsize, bool);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            assert!(!self.1, "a waker");
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_no_other_task_asleep() {
        let tasks = [false, true, false].map(|panics| Arc::new(Counting(0.into(), panics)));
        let mut wakers = Wakers::default();
        wakers.extend(tasks.iter().cloned().map(Waker::from));
        let all = std::panic::AssertUnwindSafe(move || wakers.wake());
        assert!(std::panic::catch_unwind(all).is_err());
        assert!(tasks.iter().all(|task| task.0.load(Ordering::SeqCst) == 1));
    }
}
