//! Encoded commands that are not sent yet.

use std::collections::VecDeque;
use std::time::Instant;

use super::batch::BatchLane;
use super::slots::SlotId;
use crate::store::pace::Pace;

/// Size up to which an empty buffer is kept for the next commands.
const KEPT: usize = 1 << 20;

/// The commands of a connection, in the order in which they are sent.
pub(super) struct Queue {
    /// Completions, releases, renewals and reads.
    endings: Lane,
    /// Completions that a server executes together.
    pub(super) batches: BatchLane,
    claims: Lane,
    /// Pace at which claims leave the queue.
    pub(super) pace: Pace,
}

/// Commands in the order of their arrival, and their bytes, one after the other.
#[derive(Default)]
struct Lane {
    commands: VecDeque<QueuedCommand>,
    bytes: Vec<u8>,
    /// Where the bytes of the first command begin.
    begin: usize,
}

/// One or two commands of a sender.
#[derive(Clone, Copy)]
pub(super) struct QueuedCommand {
    pub(super) slot: SlotId,
    /// Number of replies.
    pub(super) replies: u8,
    bytes: usize,
}

impl Queue {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            endings: Lane::default(),
            batches: BatchLane::default(),
            claims: Lane::default(),
            pace: Pace::new(now),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.batches.len() + self.endings.commands.len() + self.claims.commands.len()
    }

    pub(super) fn claims(&self) -> usize {
        self.claims.commands.len()
    }

    /// Adds a command, whose bytes `encode` appends.
    pub(super) fn push(
        &mut self,
        slot: SlotId,
        replies: u8,
        is_claim: bool,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let lane = if is_claim {
            if self.claims.commands.is_empty() {
                self.pace.joined(0, Instant::now());
            }
            &mut self.claims
        } else {
            &mut self.endings
        };
        let before = lane.bytes.len();
        encode(&mut lane.bytes);
        lane.commands.push_back(QueuedCommand {
            slot,
            replies,
            bytes: lane.bytes.len() - before,
        });
    }

    /// Moves at most `most` commands to `out`. `keep` tells whether a command still has a sender.
    pub(super) fn take(
        &mut self,
        most: usize,
        now: Instant,
        out: &mut Vec<u8>,
        mut keep: impl FnMut(QueuedCommand) -> bool,
    ) {
        let endings = self.endings.take(most, out, &mut keep);
        let claims = self.claims.take(most - endings, out, &mut keep);
        if claims > 0 {
            self.pace.left(claims, self.claims.commands.len(), now);
        }
    }

    /// Removes all commands.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = SlotId> + use<> {
        let [endings, claims] = [&mut self.endings, &mut self.claims].map(std::mem::take);
        let commands = endings.commands.into_iter().chain(claims.commands);
        (self.batches.clear()).chain(commands.map(|command| command.slot))
    }
}

impl Lane {
    /// Moves commands, and returns their number.
    fn take(
        &mut self,
        most: usize,
        out: &mut Vec<u8>,
        keep: &mut impl FnMut(QueuedCommand) -> bool,
    ) -> usize {
        let count = self.commands.len().min(most);
        let first = self.begin;
        let (mut begin, mut end) = (first, first);
        for command in self.commands.drain(..count) {
            let next = end + command.bytes;
            if !keep(command) {
                out.extend_from_slice(&self.bytes[begin..end]);
                begin = next;
            }
            end = next;
        }
        self.begin = end;
        if self.commands.is_empty() {
            // All bytes of all commands: no copy.
            if out.is_empty() && begin == 0 && first == 0 {
                std::mem::swap(out, &mut self.bytes);
            } else {
                out.extend_from_slice(&self.bytes[begin..end]);
            }
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
            self.begin = 0;
        } else {
            out.extend_from_slice(&self.bytes[begin..end]);
            // The bytes in front are dropped once they are the larger part.
            if self.begin > self.bytes.len() / 2 {
                self.bytes.drain(..self.begin);
                self.begin = 0;
            }
        }
        count
    }
}
