//! Commands of several senders that are executed by one call of a script.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use redis::Value;

use super::slots::SlotId;
use super::words::{array, word};
use crate::store::redis::arguments::decimal;

/// Most commands of a batch, because the server executes nothing else meanwhile.
const MOST: usize = 32;
/// Size up to which an empty buffer is kept for the next commands.
const KEPT: usize = 1 << 20;

/// The digests of two scripts, which take the same arguments for each key.
#[derive(Debug)]
pub(crate) struct BatchScript {
    /// Executes one command.
    pub(crate) one: String,
    /// Executes several. Its reply is 1, or the positions, from 1 on, of the commands that it has not executed: negative
    /// where the key has no value.
    pub(crate) many: String,
}

/// A command of a batch: the words of its key and of its arguments.
#[derive(Clone, Copy)]
pub(crate) struct BatchCommand<'a> {
    pub(crate) script: &'a Arc<BatchScript>,
    pub(crate) key: &'a [u8],
    pub(crate) arguments: [&'a [u8]; 2],
}

/// Queued commands of batches, in the order of their arrival, and their bytes.
#[derive(Default)]
pub(super) struct BatchLane {
    script: Option<Arc<BatchScript>>,
    commands: VecDeque<Member>,
    bytes: Vec<u8>,
    /// Where the bytes of the first command begin.
    begin: usize,
    /// The bytes of the commands of a batch: key and arguments. Empty between two batches.
    batch: Vec<[Range<usize>; 2]>,
}

struct Member {
    slot: SlotId,
    /// Bytes of its key, and of its arguments.
    key: usize,
    arguments: usize,
}

impl BatchScript {
    /// Writes all words before the keys.
    fn write(&self, out: &mut Vec<u8>, commands: usize) {
        let script = if commands == 1 { &self.one } else { &self.many };
        array(out, 3 + 3 * commands);
        word(out, b"EVALSHA");
        word(out, script.as_bytes());
        word(out, decimal(commands as u64).as_bytes());
    }
}

impl BatchCommand<'_> {
    /// Writes the command alone.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.script.write(out, 1);
        self.write_key(out);
        self.write_arguments(out);
    }

    fn write_key(&self, out: &mut Vec<u8>) {
        word(out, self.key);
    }

    fn write_arguments(&self, out: &mut Vec<u8>) {
        self.arguments
            .iter()
            .for_each(|argument| word(out, argument));
    }
}

impl BatchLane {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Adds a command. All commands of a connection have one script.
    pub(super) fn push(&mut self, slot: SlotId, command: &BatchCommand<'_>) {
        if self.script.is_none() {
            self.script = Some(Arc::clone(command.script));
        }
        let begin = self.bytes.len();
        command.write_key(&mut self.bytes);
        let key = self.bytes.len() - begin;
        command.write_arguments(&mut self.bytes);
        let arguments = self.bytes.len() - begin - key;
        self.commands.push_back(Member {
            slot,
            key,
            arguments,
        });
    }

    /// Moves one batch of at most `most` commands to `out`, and returns their number. `keep`: whether a command still
    /// has a sender.
    ///
    /// A batch ends before a key that it has already, because its script reads all records before it writes.
    pub(super) fn take(
        &mut self,
        most: usize,
        out: &mut Vec<u8>,
        mut keep: impl FnMut(SlotId) -> bool,
    ) -> usize {
        while self.batch.len() < most.min(MOST)
            && let Some(member) = self.commands.front()
        {
            let arguments = self.begin + member.key;
            let end = arguments + member.arguments;
            if self.has_key(&self.bytes[self.begin..arguments]) {
                break;
            }
            if keep(member.slot) {
                self.batch.push([self.begin..arguments, arguments..end]);
            }
            self.commands.pop_front();
            self.begin = end;
        }
        let count = self.batch.len();
        if count > 0
            && let Some(script) = &self.script
        {
            script.write(out, count);
            for part in [0, 1] {
                for ranges in &self.batch {
                    out.extend_from_slice(&self.bytes[ranges[part].clone()]);
                }
            }
            self.batch.clear();
        }
        if self.commands.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
            self.begin = 0;
        } else if self.begin > self.bytes.len() / 2 {
            // The bytes in front are dropped once they are the larger part.
            self.bytes.drain(..self.begin);
            self.begin = 0;
        }
        count
    }

    /// Whether the batch has a command with this key.
    fn has_key(&self, key: &[u8]) -> bool {
        // Keys have a common start and, nearly always, other ends.
        let end = |key: &[u8]| key.last_chunk::<8>().copied();
        self.batch.iter().any(|[other, _]| {
            let other = &self.bytes[other.clone()];
            end(other) == end(key) && other == key
        })
    }

    /// Removes all commands.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = SlotId> + use<> {
        let commands = std::mem::take(self).commands;
        commands.into_iter().map(|member| member.slot)
    }
}

/// The reply to the command at this position, from 1 on, of a batch of `count` with this reply: 1, or 0 where it was not
/// executed, or -1 where its key has no value either. Any other reply is that of all commands.
pub(super) fn reply_at(reply: &Value, position: usize, count: usize) -> Value {
    let Value::Array(left) = reply else {
        return reply.clone();
    };
    let place = |value: &Value| match value {
        Value::Int(place) => usize::try_from(place.unsigned_abs())
            .ok()
            .filter(|at| (1..=count).contains(at))
            .map(|at| (at, place.is_negative())),
        _ => None,
    };
    if left.is_empty() || left.iter().any(|value| place(value).is_none()) {
        return reply.clone();
    }
    let mut places = left.iter().filter_map(place);
    let left = places.find(|(at, _)| *at == position);
    Value::Int(left.map_or(1, |(_, is_absent)| if is_absent { -1 } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::super::slots::Slots;
    use super::*;

    #[test]
    fn a_batch_has_no_key_twice() {
        let script = Arc::new(BatchScript {
            one: "one".to_owned(),
            many: "many".to_owned(),
        });
        let (mut lane, mut slots) = (BatchLane::default(), Slots::default());
        for key in ["a", "b", "a", "a", "c"] {
            let (script, key) = (&script, key.as_bytes());
            let arguments = [key, b""];
            let command = BatchCommand {
                script,
                key,
                arguments,
            };
            lane.push(slots.add(), &command);
        }
        let mut out = Vec::new();
        let mut taken = || lane.take(MOST, &mut out, |_| true);
        assert_eq!([taken(), taken(), taken(), taken()], [2, 1, 2, 0]);
        let lines = str::from_utf8(&out).unwrap().split("\r\n");
        let words: Vec<_> = lines.filter(|line| !line.starts_with('$')).collect();
        assert_eq!(
            words.join(" "),
            "*9 EVALSHA many 2 a b a  b  *6 EVALSHA one 1 a a  *9 EVALSHA many 2 a c a  c  "
        );
    }

    #[test]
    fn a_command_is_executed_only_where_the_reply_says_so() {
        let ints = |left: &[i64]| Value::Array(left.iter().copied().map(Value::Int).collect());
        let replies = |reply: &Value| [1, 2, 3].map(|at| reply_at(reply, at, 3));
        for (reply, expected) in [
            (Value::Int(1), [1, 1, 1]),
            (ints(&[2]), [1, 0, 1]),
            (ints(&[1, -3]), [0, 1, -1]),
            (ints(&[1, 2, 3]), [0, 0, 0]),
        ] {
            assert_eq!(replies(&reply), expected.map(Value::Int), "{reply:?}");
        }
        for other in [
            ints(&[]),
            ints(&[0]),
            ints(&[4]),
            ints(&[2, -4]),
            ints(&[i64::MIN]),
            Value::Array(vec![Value::Nil]),
            Value::Nil,
            Value::Int(0),
            Value::Okay,
        ] {
            let all = [0; 3].map(|_| other.clone());
            assert_eq!(replies(&other), all);
        }
    }
}
