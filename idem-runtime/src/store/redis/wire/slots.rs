//! Places where senders wait for their replies.

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
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<SlotId>,
}

enum Slot {
    Free,
    /// The command waits in the queue, or its replies have not all arrived.
    Waiting {
        waker: Option<Waker>,
        first: Option<Value>,
    },
    Replied(RedisResult<Replies>),
    /// The sender has left. The place is free again with the last reply.
    Abandoned,
}

impl Slots {
    pub(super) fn add(&mut self) -> SlotId {
        let waiting = Slot::Waiting {
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
        if let Slot::Waiting { waker: former, .. } = &mut self.slots[id.at()] {
            let is_known = former
                .as_ref()
                .is_some_and(|former| former.will_wake(waker));
            let replaced = (!is_known).then(|| former.replace(waker.clone()));
            return (Poll::Pending, replaced.flatten());
        }
        match self.release(id) {
            Slot::Replied(replies) => (Poll::Ready(replies), None),
            _ => unreachable!("a sender polls its own place until it has its replies"),
        }
    }

    /// The sender leaves. Returns the waker of its place.
    pub(super) fn abandon(&mut self, id: SlotId) -> Option<Waker> {
        let slot = &mut self.slots[id.at()];
        if let Slot::Waiting { waker, .. } = slot {
            let waker = waker.take();
            *slot = Slot::Abandoned;
            return waker;
        }
        self.release(id);
        None
    }

    /// Whether the sender can take its result.
    pub(super) fn has_replied(&self, id: SlotId) -> bool {
        matches!(self.slots[id.at()], Slot::Replied(_))
    }

    /// Whether the sender has left.
    pub(super) fn has_left(&self, id: SlotId) -> bool {
        matches!(self.slots[id.at()], Slot::Abandoned)
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
            Slot::Waiting { first, .. } if !last => {
                *first = Some(value);
                None
            }
            Slot::Waiting { first, .. } => {
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
            Slot::Abandoned if last => {
                self.release(id);
                None
            }
            _ => None,
        }
    }

    /// Gives the sender its result; none is expected any more.
    pub(super) fn end(&mut self, id: SlotId, result: RedisResult<Replies>) -> Option<Waker> {
        match &mut self.slots[id.at()] {
            slot @ Slot::Waiting { .. } => match mem::replace(slot, Slot::Replied(result)) {
                Slot::Waiting { waker, .. } => waker,
                _ => None,
            },
            Slot::Abandoned => {
                self.release(id);
                None
            }
            Slot::Free | Slot::Replied(_) => None,
        }
    }

    fn release(&mut self, id: SlotId) -> Slot {
        self.free.push(id);
        mem::replace(&mut self.slots[id.at()], Slot::Free)
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
