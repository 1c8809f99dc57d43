//! The bytes of commands, and the queue of unsent commands.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use redis::{Cmd, Value};

use super::slots::SlotId;
use crate::store::pace::Pace;

/// Largest size of an empty buffer that is kept.
const KEPT: usize = 1 << 20;
/// Most commands of a batch, because the server executes nothing else meanwhile.
const MOST: usize = 32;

/// Writes a command at the place that sends it.
///
/// A command in the future of a call would be copied for each possible path of it.
pub(crate) type WriteCommand<'a> = dyn Fn(&mut Words<'_>) + Send + Sync + 'a;

/// Receives the words of commands: their bytes, one after the other.
pub(crate) struct Words<'a>(&'a mut Vec<u8>);

impl<'a> Words<'a> {
    /// Appends commands to these bytes, as the protocol has them: an array of texts for each.
    pub(super) fn encoded(bytes: &'a mut Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Writes one command: all words of all parts.
    pub(crate) fn command(&mut self, parts: &[&[&[u8]]]) {
        let words = || parts.iter().copied().flatten();
        // Each word has a length of up to 7 digits, a letter and two ends of line with it.
        let size: usize = words().map(|word| word.len() + 12).sum();
        self.0.reserve(size + 12);
        array(self.0, words().count());
        words().for_each(|text| word(self.0, text));
    }

    /// Writes a command of the client library.
    pub(crate) fn copy(&mut self, command: &Cmd) {
        command.write_packed_command(self.0);
    }
}

/// Begins a command of so many words.
fn array(bytes: &mut Vec<u8>, words: usize) {
    length(bytes, b'*', words);
}

/// Appends a word.
fn word(bytes: &mut Vec<u8>, word: &[u8]) {
    length(bytes, b'$', word.len());
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(b"\r\n");
}

fn length(bytes: &mut Vec<u8>, kind: u8, length: usize) {
    #[allow(clippy::cast_possible_truncation, reason = "a digit")]
    let digit = |power| b'0' + (length / power % 10) as u8;
    // Nearly all lengths. Of a known size, no copy is a call.
    match length {
        0..10 => bytes.extend_from_slice(&[kind, digit(1), b'\r', b'\n']),
        10..100 => bytes.extend_from_slice(&[kind, digit(10), digit(1), b'\r', b'\n']),
        100..1_000 => {
            bytes.extend_from_slice(&[kind, digit(100), digit(10), digit(1), b'\r', b'\n']);
        }
        _ => {
            bytes.push(kind);
            bytes.extend_from_slice(decimal(length as u64).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
    }
}

/// A number as text, as Redis takes it.
#[derive(Clone, Copy)]
pub(crate) struct Decimal {
    digits: [u8; 20],
    begin: usize,
}

impl Decimal {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.begin..]
    }
}

/// A number as text.
pub(crate) fn decimal(mut number: u64) -> Decimal {
    let mut text = Decimal {
        digits: [b'0'; 20],
        begin: 20,
    };
    loop {
        text.begin -= 1;
        text.digits[text.begin] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return text;
        }
    }
}

/// The commands of a connection, in sending order.
pub(super) struct CommandQueue {
    /// Completions, releases, renewals and reads.
    endings: CommandLane,
    /// Completions that a server executes together.
    pub(super) batches: BatchLane,
    claims: CommandLane,
    /// Pace at which claims leave the queue.
    pub(super) pace: Pace,
}

/// Commands in order of arrival, and their bytes in succession.
struct QueueLane<C> {
    commands: VecDeque<C>,
    bytes: Vec<u8>,
    /// Where the bytes of the first command begin.
    begin: usize,
}

impl<C> Default for QueueLane<C> {
    fn default() -> Self {
        Self {
            commands: VecDeque::new(),
            bytes: Vec::new(),
            begin: 0,
        }
    }
}

impl<C> QueueLane<C> {
    /// Drops the bytes in front once they are the larger part.
    fn trim(&mut self) {
        if self.commands.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
            self.begin = 0;
        } else if self.begin > self.bytes.len() / 2 {
            self.bytes.drain(..self.begin);
            self.begin = 0;
        }
    }
}

type CommandLane = QueueLane<QueuedCommand>;

/// One or two commands of a sender.
#[derive(Clone, Copy)]
pub(super) struct QueuedCommand {
    pub(super) slot: SlotId,
    /// Number of replies.
    pub(super) replies: u8,
    bytes: usize,
}

impl CommandQueue {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            endings: CommandLane::default(),
            batches: BatchLane::default(),
            claims: CommandLane::default(),
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
        let [endings, claims] = [&mut self.endings, &mut self.claims].map(mem::take);
        let commands = endings.commands.into_iter().chain(claims.commands);
        (self.batches.clear()).chain(commands.map(|command| command.slot))
    }
}

impl CommandLane {
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
        let is_whole = self.commands.is_empty() && begin == 0 && first == 0;
        if is_whole && out.is_empty() {
            // All bytes of all commands: no copy.
            mem::swap(out, &mut self.bytes);
        } else {
            out.extend_from_slice(&self.bytes[begin..end]);
        }
        self.trim();
        count
    }
}

/// The digests of two scripts with the same arguments for each key.
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

/// Queued commands of batches in order of arrival, and their bytes.
#[derive(Default)]
pub(super) struct BatchLane {
    script: Option<Arc<BatchScript>>,
    lane: QueueLane<BatchedCommand>,
    /// The bytes of the commands of a batch: key and arguments. Empty between two batches.
    batch: Vec<[Range<usize>; 2]>,
}

struct BatchedCommand {
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
        self.lane.commands.len()
    }

    /// Adds a command. All commands of a connection have one script.
    pub(super) fn push(&mut self, slot: SlotId, command: &BatchCommand<'_>) {
        if self.script.is_none() {
            self.script = Some(Arc::clone(command.script));
        }
        let bytes = &mut self.lane.bytes;
        let begin = bytes.len();
        command.write_key(bytes);
        let key = bytes.len() - begin;
        command.write_arguments(bytes);
        let arguments = bytes.len() - begin - key;
        self.lane.commands.push_back(BatchedCommand {
            slot,
            key,
            arguments,
        });
    }

    /// Moves a batch of at most `most` commands to `out`; their number. `keep`: whether a command still has a sender.
    ///
    /// A batch ends before a key that it has already, because its script reads all records before it writes.
    pub(super) fn take(
        &mut self,
        most: usize,
        out: &mut Vec<u8>,
        mut keep: impl FnMut(SlotId) -> bool,
    ) -> usize {
        while self.batch.len() < most.min(MOST)
            && let Some(member) = self.lane.commands.front()
        {
            let begin = self.lane.begin;
            let arguments = begin + member.key;
            let end = arguments + member.arguments;
            if self.has_key(&self.lane.bytes[begin..arguments]) {
                break;
            }
            if keep(member.slot) {
                self.batch.push([begin..arguments, arguments..end]);
            }
            self.lane.commands.pop_front();
            self.lane.begin = end;
        }
        let count = self.batch.len();
        if count > 0
            && let Some(script) = &self.script
        {
            script.write(out, count);
            for part in [0, 1] {
                for ranges in &self.batch {
                    out.extend_from_slice(&self.lane.bytes[ranges[part].clone()]);
                }
            }
            self.batch.clear();
        }
        self.lane.trim();
        count
    }

    /// Whether the batch has a command with this key.
    fn has_key(&self, key: &[u8]) -> bool {
        // Keys have a common start and, nearly always, other ends.
        let end = |key: &[u8]| key.last_chunk::<8>().copied();
        self.batch.iter().any(|[other, _]| {
            let other = &self.lane.bytes[other.clone()];
            end(other) == end(key) && other == key
        })
    }

    /// Removes all commands.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = SlotId> + use<> {
        let commands = mem::take(self).lane.commands;
        commands.into_iter().map(|member| member.slot)
    }
}

/// The part of the command at this position in a batch's reply: 1, or 0 where it was not executed, or -1 where its key
/// has no value either. Any other reply is that of all commands.
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
    use super::*;
    use crate::store::redis::wire::slots::ReplySlots;

    #[test]
    fn commands_have_the_bytes_of_the_client_library() {
        let long = vec![b'x'; 12_345];
        let lengths: Vec<&[u8]> = [0, 1, 9, 10, 11, 99, 100, 109, 999, 1_000, 12_345]
            .map(|length| &long[..length])
            .to_vec();
        for parts in [
            &[&[b"HELLO" as &[u8]] as &[&[u8]]] as &[&[&[u8]]],
            &[&[b"SET", b"name", b"a\r\nb\0"], &[b"NX", b"", &long]],
            &[&lengths],
        ] {
            let mut bytes = b"before".to_vec();
            Words::encoded(&mut bytes).command(parts);
            let mut command = Cmd::new();
            for word in parts.iter().copied().flatten() {
                command.arg(*word);
            }
            assert_eq!(bytes[6..], command.get_packed_command());
            let mut copied = Vec::new();
            Words::encoded(&mut copied).copy(&command);
            assert_eq!(bytes[6..], copied);
        }
    }
    #[test]
    fn decimals_are_those_of_the_standard_library() {
        let powers = (0..20).map(|power| 10_u64.pow(power));
        for number in powers
            .flat_map(|power| [power - 1, power, power + 1])
            .chain([u64::MAX])
        {
            assert_eq!(decimal(number).as_bytes(), number.to_string().as_bytes());
        }
    }
    #[test]
    fn a_batch_has_no_key_twice() {
        let script = Arc::new(BatchScript {
            one: "one".to_owned(),
            many: "many".to_owned(),
        });
        let (mut lane, mut slots) = (BatchLane::default(), ReplySlots::default());
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
