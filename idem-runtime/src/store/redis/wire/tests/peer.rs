//! A scripted server, and senders that know each of its replies.

use super::*;

/// The server's side: it executes one command after the other.
#[derive(Default)]
pub(super) struct Peer {
    received: Vec<u8>,
    /// The words of the commands, and the keys of batches.
    executed: Vec<String>,
    /// Where each reply ends, in all bytes of replies.
    ends: HashMap<String, usize>,
    bytes: usize,
    /// Keys of the batches that it refused.
    refused: Vec<String>,
}

impl Peer {
    /// Executes the complete commands, and returns the reply to each.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.received.extend_from_slice(bytes);
        let (mut replies, mut at) = (Vec::new(), 0);
        let text = |word| match word {
            Value::BulkString(word) => String::from_utf8(word).unwrap(),
            word => panic!("{word:?}"),
        };
        loop {
            let first = frame::first(&self.received[at..]).unwrap();
            let Frame::Reply(Value::Array(words), length) = first else {
                break;
            };
            at += length;
            let words: Vec<_> = words.into_iter().map(text).collect();
            let before = self.executed.len();
            let reply = self.execute(&words);
            self.bytes += reply.len();
            for word in &self.executed[before..] {
                let former = self.ends.insert(word.clone(), self.bytes);
                assert_eq!(former, None, "{word} is executed twice");
            }
            replies.push(reply);
        }
        self.received.drain(..at);
        replies
    }

    fn execute(&mut self, words: &[String]) -> Vec<u8> {
        if words[0] == "ECHO" {
            let word = words.last().unwrap();
            if word.ends_with("/1") {
                let first = format!("{}/0", number(word) - 1);
                assert_eq!(self.executed.last(), Some(&first), "a pair is together");
            }
            self.executed.push(word.clone());
            return reply_to(word).1;
        }
        // A batch: its keys, then two arguments of each.
        let count: usize = words[2].parse().unwrap();
        assert!(count <= 32, "the server executes nothing else meanwhile");
        let script = if count == 1 { "one" } else { "many" };
        assert_eq!((&*words[1], words.len()), (script, 3 + 3 * count));
        let (keys, arguments) = words[3..].split_at(count);
        for (key, arguments) in keys.iter().zip(arguments.chunks_exact(2)) {
            assert_eq!(arguments, arguments_of(key));
        }
        self.executed.extend_from_slice(keys);
        if number(&keys[0]) % 11 == 5 {
            self.refused.extend_from_slice(keys);
            return b"-NOSCRIPT none\r\n".to_vec();
        }
        let left = keys.iter().zip(1..).filter(|(key, _)| !is_executed(key));
        let left: Vec<_> = left.map(|(_, at)| format!(":{at}\r\n")).collect();
        let reply = match (&left[..], count) {
            ([], _) => ":1\r\n".to_owned(),
            (_, 1) => ":0\r\n".to_owned(),
            _ => format!("*{}\r\n{}", left.len(), left.concat()),
        };
        reply.into_bytes()
    }

    /// A message that replies to no command.
    pub(super) fn push(&mut self) -> &'static [u8] {
        let push = b">2\r\n+a\r\n:1\r\n";
        self.bytes += push.len();
        push
    }

    /// Whether `written` bytes include all replies to this sender.
    pub(super) fn has_replied(&self, sender: &Sender, written: usize) -> bool {
        let mut ends = sender.words.iter().map(|word| self.ends.get(word));
        ends.all(|end| end.is_some_and(|end| *end <= written))
    }
}

/// The reply to a command, and its bytes.
fn reply_to(word: &str) -> (Value, Vec<u8>) {
    let number = number(word);
    let bytes = match number % 6 {
        0 => format!("-ERR {word}\r\n"),
        1 => format!("*3\r\n$1\r\nC\r\n:{number}\r\n*2\r\n$-1\r\n+{word}\r\n"),
        2 => format!(":{number}\r\n"),
        3 => format!("%1\r\n+{word}\r\n_\r\n"),
        _ => {
            let long = if number % 35 == 4 { 3_000 } else { 1 };
            let text = format!("{word}\r\n").repeat(long);
            format!("${}\r\n{text}\r\n", text.len())
        }
    };
    let value = redis::parse_redis_value(bytes.as_bytes()).unwrap();
    (value, bytes.into_bytes())
}

fn number(word: &str) -> usize {
    word.split('/').next().unwrap().parse().unwrap()
}

fn arguments_of(key: &str) -> [String; 2] {
    ["a", "b"].map(|argument| argument.repeat(number(key) % 40))
}

/// Whether the script of batches executes the command.
fn is_executed(key: &str) -> bool {
    !number(key).is_multiple_of(4)
}

#[derive(Clone, Copy, Debug)]
pub(super) enum CommandKind {
    One,
    Pair,
    InBatch,
}

/// A sender of one or two commands, whose words begin with numbers.
pub(super) struct Sender {
    pub(super) words: Vec<String>,
    pub(super) replies: PendingReplies,
    /// It may have an error although its replies have arrived.
    pub(super) may_fail: bool,
}

impl Sender {
    pub(super) fn begin(
        wire: &Wire,
        number: usize,
        kind: CommandKind,
        claims: bool,
    ) -> RedisResult<Self> {
        let words = match kind {
            CommandKind::One => vec![format!("{number}/0")],
            CommandKind::Pair => vec![format!("{number}/0"), format!("{}/1", number + 1)],
            CommandKind::InBatch => vec![format!("{number}/batch")],
        };
        let replies = if let CommandKind::InBatch = kind {
            let [first, second] = arguments_of(&words[0]);
            wire.begin_in_batch(&BatchCommand {
                script: &batch_script(),
                key: words[0].as_bytes(),
                arguments: [first.as_bytes(), second.as_bytes()],
            })
        } else {
            // Some commands are longer than the buffer of a socket.
            let padding = vec![b'x'; if number % 50 == 7 { 5_000 } else { number % 9 }];
            let echo = |word: &String, out: &mut Words<'_>| {
                out.command(&[&[b"ECHO", &padding, word.as_bytes()]]);
            };
            let first = |out: &mut Words<'_>| echo(&words[0], out);
            let second = |out: &mut Words<'_>| echo(&words[1], out);
            let second = (words.len() == 2).then_some(&second as &WriteCommand<'_>);
            wire.begin(&first, second, claims)
        };
        Ok(Self {
            replies: replies?,
            words,
            may_fail: false,
        })
    }

    /// Whether it is polled before it is awaited.
    pub(super) fn is_polled(&self) -> bool {
        number(&self.words[0]).is_multiple_of(3)
    }

    pub(super) fn check(&self, replies: RedisResult<Replies>, peer: &Peer, may_fail: bool) {
        let word = &self.words[0];
        match replies {
            Ok(replies) if word.ends_with("/batch") => match replies.first {
                Value::ServerError(_) => assert!(peer.refused.contains(word)),
                reply => {
                    assert!(!peer.refused.contains(word));
                    assert_eq!(reply, Value::Int(is_executed(word).into()), "of {word}");
                }
            },
            Ok(replies) => {
                let replies = [replies.first].into_iter().chain(replies.second);
                let words = self.words.iter().map(|word| reply_to(word).0);
                assert!(replies.eq(words), "of {:?}", self.words);
            }
            Err(error) => {
                assert!(may_fail, "{error} of {:?}", self.words);
                assert!(error.is_timeout() || breaks_connection(&error), "{error}");
            }
        }
    }
}
