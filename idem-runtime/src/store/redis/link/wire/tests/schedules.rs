//! Random schedules of senders, a server and the task: each reply reaches its own sender or none.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// Senders begin this many commands.
    Send(usize, CommandKind, bool),
    Leave(Index),
    /// Commands in flight reach their time limit.
    Expire,
    /// The task runs this many times.
    Run(usize),
    /// A sender begins to write: what is queued, in no batch, if all of what is in flight is written.
    BeginWrite,
    EndWrite,
    /// The server reads, executes, and writes this many bytes of its replies.
    Serve(usize),
    /// The server sends a message that replies to no command.
    Push,
    Close,
}

#[derive(Clone, Copy, Debug)]
enum CommandKind {
    One,
    Pair,
    InBatch,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = || {
        prop_oneof![
            Just(CommandKind::One),
            Just(CommandKind::Pair),
            Just(CommandKind::InBatch)
        ]
    };
    let send = |(count, kind, claims)| Step::Send(count, kind, claims);
    let step = prop_oneof![
        8 => (1_usize..5, kind(), any::<bool>()).prop_map(send),
        1 => (300_usize..700, kind(), any::<bool>()).prop_map(send),
        6 => any::<Index>().prop_map(Step::Leave),
        1 => Just(Step::Expire),
        8 => (1_usize..4).prop_map(Step::Run),
        3 => Just(Step::BeginWrite),
        3 => Just(Step::EndWrite),
        6 => (1_usize..40).prop_map(Step::Serve),
        4 => (1_000_usize..300_000).prop_map(Step::Serve),
        1 => Just(Step::Push),
    ];
    (
        vec(step, 1..80),
        proptest::option::weighted(0.2, Just(Step::Close)),
    )
        .prop_map(|(steps, close)| steps.into_iter().chain(close).collect())
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

fn script_of(count: usize) -> &'static str {
    if count == 1 { "one" } else { "many" }
}

fn arguments_of(key: &str) -> [String; 2] {
    ["a", "b"].map(|argument| argument.repeat(number(key) % 40))
}

/// Whether the script of batches executes the command.
fn is_executed(key: &str) -> bool {
    !number(key).is_multiple_of(4)
}

/// A server that executes one command after the other.
struct Server {
    stream: DuplexStream,
    received: Vec<u8>,
    /// The words of the commands.
    executed: Vec<String>,
    /// Those of batches that the server refused.
    refused: Vec<String>,
    unsent: Vec<u8>,
}

impl Server {
    fn on(stream: DuplexStream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            executed: Vec::new(),
            refused: Vec::new(),
            unsent: Vec::new(),
        }
    }

    /// Executes a batch: its keys, then two arguments of each.
    fn execute(&mut self, words: &[String]) {
        let (keys, arguments) = words.split_at(words.len() / 3);
        for (key, arguments) in keys.iter().zip(arguments.chunks_exact(2)) {
            assert_eq!(arguments, arguments_of(key));
        }
        self.executed.extend_from_slice(keys);
        if number(&keys[0]) % 11 == 5 {
            self.refused.extend_from_slice(keys);
            self.unsent.extend(b"-NOSCRIPT none\r\n");
            return;
        }
        self.unsent.extend(batch_reply(keys, is_executed).bytes());
    }

    async fn serve(&mut self, mut most: usize) {
        let mut bytes = [0; 4_096];
        while let Some(read) = poll_once(pin!(self.stream.read(&mut bytes))).await {
            match read {
                Ok(read) if read > 0 => self.received.extend(&bytes[..read]),
                _ => break,
            }
        }
        for words in take_commands(&mut self.received) {
            match &words[..] {
                [_, word] => {
                    self.unsent.extend(reply_to(word).1);
                    self.executed.push(word.clone());
                }
                [_, script, count, words @ ..] => {
                    let count = count.parse().unwrap();
                    assert_eq!((&**script, words.len()), (script_of(count), 3 * count));
                    self.execute(words);
                }
                _ => panic!("{words:?}"),
            }
        }
        while most > 0 && !self.unsent.is_empty() {
            let part = &self.unsent[..most.min(self.unsent.len())];
            match poll_once(pin!(self.stream.write(part))).await {
                Some(Ok(written)) => {
                    self.unsent.drain(..written);
                    most -= written;
                }
                _ => break,
            }
        }
    }
}

struct Sender {
    words: Vec<String>,
    replies: PendingReplies,
    /// It is polled during the schedule, and not only at its end.
    is_polled: bool,
    /// Its time limit may have ended.
    may_fail: bool,
}

impl Sender {
    /// Sends a command or two, with words that begin with this number and the next one.
    fn begin(wire: &Wire, number: usize, kind: CommandKind, claims: bool) -> Self {
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
            let second = words.get(1).map(|word| said(word));
            let second = second.as_ref().map(|second| second as &WriteCommand<'_>);
            wire.begin(&said(&words[0]), second, claims)
        };
        Self {
            is_polled: number.is_multiple_of(3),
            words,
            replies: replies.unwrap(),
            may_fail: false,
        }
    }

    fn check(&self, replies: RedisResult<Replies>, server: &Server) {
        let word = &self.words[0];
        match replies {
            Ok(replies) if word.ends_with("/batch") => match replies.first {
                Value::ServerError(_) => assert!(server.refused.contains(word)),
                reply => {
                    assert!(!server.refused.contains(word));
                    assert_eq!(reply, Value::Int(is_executed(word).into()), "of {word}");
                }
            },
            Ok(replies) => {
                let replies = [replies.first].into_iter().chain(replies.second);
                let words = self.words.iter().map(|word| reply_to(word).0);
                assert!(replies.eq(words), "of {:?}", self.words);
            }
            Err(error) => assert!(self.may_fail, "{error} of {:?}", self.words),
        }
    }
}

fn may_fail(senders: &mut [Sender]) {
    for sender in senders {
        sender.may_fail = true;
    }
}

/// Awaits all senders: nothing but the wakes of the wire let its task run.
async fn check_all(senders: Vec<Sender>, server: &mut Server) {
    let delivered = async {
        let mut delivered = Vec::new();
        for mut sender in senders {
            let replies = (&mut sender.replies).await;
            delivered.push((sender, replies));
        }
        delivered
    };
    let replying = async {
        loop {
            server.serve(usize::MAX).await;
            tokio::task::yield_now().await;
        }
    };
    let ended = tokio::time::timeout(BOUND, async {
        tokio::select! {
            delivered = delivered => delivered,
            () = replying => unreachable!("it never ends"),
        }
    });
    let delivered = ended.await.expect("a sender waits for ever");
    for (sender, replies) in delivered {
        sender.check(replies, server);
    }
}

async fn run(steps: Vec<Step>, buffer: usize, early_flush: usize) {
    let (here, there) = tokio::io::duplex(buffer);
    let wire = over(here, LONG);
    wire.0.lock().early_flush = early_flush;
    let mut server = Server::on(there);
    let (mut senders, mut sent) = (Vec::new(), 0);
    let mut closed = false;
    let mut output = None;
    for step in steps {
        match step {
            Step::Send(count, kind, claims) => {
                for _ in 0..count {
                    let sender = Sender::begin(&wire, sent, kind, claims);
                    sent += sender.words.len();
                    senders.push(sender);
                }
            }
            Step::Leave(at) if !senders.is_empty() => {
                senders.swap_remove(at.index(senders.len()));
            }
            Step::Expire => {
                let mut wakers = Wakers::default();
                let mut state = wire.0.lock();
                // With all places taken by such commands the connection would end.
                if state.in_flight.len() < MAX_IN_FLIGHT {
                    state.expire(Instant::now() + 2 * LONG, &mut wakers);
                    may_fail(&mut senders);
                }
                drop(state);
            }
            Step::Run(times) => {
                for _ in 0..times {
                    tokio::task::yield_now().await;
                }
            }
            Step::BeginWrite => {
                let mut state = wire.0.lock();
                output = output.or_else(|| state.output.take());
                if let Some(output) = &mut output
                    && output.is_empty()
                {
                    state.flush_singles(&mut output.bytes, &wire.0, Instant::now());
                }
            }
            Step::EndWrite => {
                if let Some(output) = output.take() {
                    wire.0.write(output);
                }
            }
            Step::Serve(bytes) => server.serve(bytes).await,
            // Between two replies only.
            Step::Push if server.unsent.is_empty() => server.unsent.extend(b">2\r\n+a\r\n:1\r\n"),
            Step::Leave(_) | Step::Push => {}
            Step::Close => {
                wire.close();
                closed = true;
                may_fail(&mut senders);
            }
        }
        let mut at = 0;
        while at < senders.len() {
            let sender = &mut senders[at];
            if sender.is_polled
                && let Some(replies) = poll_once(Pin::new(&mut sender.replies)).await
            {
                senders.swap_remove(at).check(replies, &server);
            } else {
                at += 1;
            }
        }
    }
    if let Some(output) = output {
        wire.0.write(output);
    }
    check_all(senders, &mut server).await;
    // The replies to senders that have left.
    let start = Instant::now();
    while !wire.0.lock().in_flight.is_empty() || !server.unsent.is_empty() && !closed {
        assert!(start.elapsed() < BOUND, "the task has stopped");
        server.serve(usize::MAX).await;
        tokio::task::yield_now().await;
    }
    settle().await;
    let state = wire.0.lock();
    assert_eq!(state.slots.used(), 0);
    assert_eq!((state.in_flight.len(), state.queue.len()), (0, 0));
    assert_eq!(state.output.is_none(), closed);
    assert!(state.output.as_ref().is_none_or(Output::is_empty));
    drop(state);
    assert_executed_once(&server.executed, |word| {
        let number: usize = word.strip_suffix("/1")?.parse().unwrap();
        Some(format!("{}/0", number - 1))
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 20, ..ProptestConfig::default() })]
    #[test]
    fn each_reply_reaches_its_own_sender_or_none(
        steps in steps(),
        buffer in prop_oneof![Just(64_usize), Just(1_024), Just(1 << 20)],
        early_flush in prop_oneof![Just(EARLY_FLUSH), Just(usize::MAX)],
    ) {
        timed_runtime().block_on(run(steps, buffer, early_flush));
    }
}
