//! Random schedules of senders, server and task, with each ending: the fate of every command.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::peer::{CommandKind, Peer, Sender};
use super::*;

/// Turns of the task after which it has nothing to do.
const TURNS: usize = 100_000;

#[derive(Clone, Debug)]
enum WireStep {
    /// Senders begin this many commands.
    Send(usize, CommandKind, bool),
    /// This many senders leave, from this one on.
    Leave(Index, usize),
    /// Commands in flight reach their time limit.
    Expire,
    /// The task runs this many times.
    Run(usize),
    /// A sender begins to write the queue without batches, behind written commands.
    BeginWrite,
    EndWrite,
    /// The server reads, executes, and writes this many bytes of its replies.
    Serve(usize),
    /// The server sends a message that replies to no command.
    Push,
}

#[derive(Clone, Copy, Debug)]
enum WireEnd {
    Never,
    /// The owner closes the connection.
    Close,
    /// The server closes it, after any byte.
    Cut,
    /// The server sends some bytes of these words, and closes unless complete.
    Says(usize, usize),
    Fault(SocketFault),
    /// The words of a command panic.
    Command,
}

/// Bytes that end an open connection, and the reason in its error.
const WORDS: [(&[u8], &str); 9] = [
    // They reply to no command.
    (b"$1\r\nx\r\n", "a reply to no command"),
    (b"-LOADING Redis is loading\r\n", "Redis is loading"),
    (b"-NOAUTH No password\r\n", "No password"),
    (
        b"-ERR max number of clients reached\r\n",
        "of clients reached",
    ),
    // No frames, or such that the client library refuses.
    (b"HTTP/1.1 400 Bad Request\r\n", "protocol of Redis"),
    (b"#x\r\n", "Parse error"),
    (b",abc\r\n", "Parse error"),
    (b"-ERR \xff\r\n", "Parse error"),
    (b"=3\r\nabc\r\n", "Parse error"),
];
/// Number of [`WORDS`] that are replies.
const REPLIES: usize = 4;

fn steps() -> impl Strategy<Value = Vec<WireStep>> {
    let kind = || {
        prop_oneof![
            Just(CommandKind::One),
            Just(CommandKind::Pair),
            Just(CommandKind::InBatch)
        ]
    };
    let send = |(count, kind, claims)| WireStep::Send(count, kind, claims);
    let step = prop_oneof![
        8 => (1_usize..5, kind(), any::<bool>()).prop_map(send),
        1 => (300_usize..700, kind(), any::<bool>()).prop_map(send),
        6 => any::<Index>().prop_map(|at| WireStep::Leave(at, 1)),
        1 => (any::<Index>(), 1_usize..700).prop_map(|(at, count)| WireStep::Leave(at, count)),
        1 => Just(WireStep::Expire),
        8 => (1_usize..4).prop_map(WireStep::Run),
        3 => Just(WireStep::BeginWrite),
        3 => Just(WireStep::EndWrite),
        6 => (1_usize..40).prop_map(WireStep::Serve),
        4 => (1_000_usize..300_000).prop_map(WireStep::Serve),
        1 => Just(WireStep::Push),
    ];
    vec(step, 1..80)
}

fn end() -> impl Strategy<Value = WireEnd> {
    prop_oneof![
        6 => Just(WireEnd::Never),
        2 => Just(WireEnd::Close),
        2 => Just(WireEnd::Cut),
        2 => (0..WORDS.len(), 0_usize..50).prop_map(|(words, cut)| WireEnd::Says(words, cut)),
        3 => prop_oneof![Just(SocketFault::Read), Just(SocketFault::Write), Just(SocketFault::Panic)].prop_map(WireEnd::Fault),
        1 => Just(WireEnd::Command),
    ]
}

/// A peer at the other end of a stream, until it closes.
struct PeerStream {
    stream: Option<DuplexStream>,
    peer: Peer,
    unsent: Vec<u8>,
    /// Bytes of replies that were sent.
    written: usize,
}

impl PeerStream {
    async fn serve(&mut self, most: usize) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let mut bytes = [0; 4_096];
        while let Some(Ok(read @ 1..)) = poll_once(pin!(stream.read(&mut bytes))).await {
            let replies = self.peer.receive(&bytes[..read]);
            self.unsent.extend(replies.concat());
        }
        self.written += self.write(most).await;
    }

    /// Writes so many bytes, or as many as there is room for.
    async fn write(&mut self, most: usize) -> usize {
        let (mut all, most) = (0, most.min(self.unsent.len()));
        while let Some(stream) = &mut self.stream
            && all < most
            && let Some(Ok(written)) =
                poll_once(pin!(stream.write(&self.unsent[..most - all]))).await
        {
            self.unsent.drain(..written);
            all += written;
        }
        all
    }
}

struct Schedule {
    wire: Wire,
    socket: Arc<Socket>,
    server: PeerStream,
    /// That of a server that closes nothing and sends nothing more.
    open: Option<DuplexStream>,
    senders: Vec<Sender>,
    /// Number of commands.
    sent: usize,
    /// That of a sender that writes.
    output: Option<WireOutput>,
    has_ended: bool,
    /// Places lost with the connection, of commands or writes that panicked.
    lost: usize,
}

impl Schedule {
    fn new(buffer: usize, early_flush: usize) -> Self {
        let (here, there) = tokio::io::duplex(buffer);
        let (wire, socket) = faulty(here);
        wire.0.lock().early_flush = early_flush;
        let server = PeerStream {
            stream: Some(there),
            peer: Peer::default(),
            unsent: Vec::new(),
            written: 0,
        };
        Self {
            wire,
            socket,
            server,
            open: None,
            senders: Vec::new(),
            sent: 0,
            output: None,
            has_ended: false,
            lost: 0,
        }
    }

    async fn step(&mut self, step: WireStep) {
        let shared = &self.wire.0;
        match step {
            WireStep::Send(count, kind, claims) => {
                for _ in 0..count {
                    let sender = Sender::begin(&self.wire, self.sent, kind, claims).unwrap();
                    self.sent += sender.words.len();
                    self.senders.push(sender);
                }
            }
            WireStep::Leave(at, count) if !self.senders.is_empty() => {
                let first = at.index(self.senders.len());
                let last = self.senders.len().min(first + count);
                self.senders.drain(first..last);
            }
            WireStep::Expire => {
                let mut wakers = Wakers::default();
                let mut state = shared.lock();
                // With all places taken by such commands the connection would end.
                if state.in_flight.len() < MAX_IN_FLIGHT {
                    state.expire(Instant::now() + 2 * LONG, &mut wakers);
                    drop(state);
                    self.excuse_all();
                }
            }
            WireStep::Run(times) => {
                for _ in 0..times {
                    tokio::task::yield_now().await;
                }
            }
            WireStep::BeginWrite => {
                let mut state = shared.lock();
                self.output = self.output.take().or_else(|| state.output.take());
                if let Some(output) = &mut self.output
                    && output.is_empty()
                {
                    state.flush_singles(&mut output.bytes, shared, Instant::now());
                }
            }
            WireStep::EndWrite => self.end_write(),
            WireStep::Serve(bytes) => self.serve(bytes).await,
            // Between two replies only.
            WireStep::Push if self.server.unsent.is_empty() => {
                self.server.unsent.extend(self.server.peer.push());
            }
            WireStep::Leave(..) | WireStep::Push => {}
        }
        assert!(self.wire.0.lock().in_flight.len() <= MAX_IN_FLIGHT);
        self.poll_some().await;
    }

    async fn poll_some(&mut self) {
        for mut sender in mem::take(&mut self.senders) {
            let replies = if sender.is_polled() {
                poll_once(Pin::new(&mut sender.replies)).await
            } else {
                None
            };
            match replies {
                Some(replies) => self.check(&sender, replies),
                None => self.senders.push(sender),
            }
        }
    }

    /// A sender has its own replies; an error only if these have not arrived before the connection ended.
    fn check(&self, sender: &Sender, replies: RedisResult<Replies>) {
        let (peer, written) = (&self.server.peer, self.server.written);
        let is_lost = self.has_ended && !peer.has_replied(sender, written);
        sender.check(replies, peer, sender.may_fail || is_lost);
    }

    /// Runs the server, unless the connection has ended and is unread.
    async fn serve(&mut self, most: usize) {
        if self.output.is_some() || self.wire.0.lock().output.is_some() {
            self.server.serve(most).await;
        }
    }

    fn excuse_all(&mut self) {
        for sender in &mut self.senders {
            sender.may_fail = true;
        }
    }

    fn end_write(&mut self) {
        if let Some(output) = self.output.take() {
            self.wire.0.write(output);
        }
    }

    /// Ends the connection. The reason in its error.
    async fn end(&mut self, end: WireEnd) -> &'static str {
        if let WireEnd::Never = end {
            return "";
        }
        self.has_ended = true;
        match end {
            WireEnd::Never => "",
            WireEnd::Close => {
                self.wire.close();
                ""
            }
            WireEnd::Cut => {
                self.server.stream = None;
                ""
            }
            WireEnd::Says(words, cut) => {
                let (bytes, reason) = WORDS[words];
                let cut = cut.min(bytes.len());
                self.end_write();
                if words < REPLIES {
                    // Every command has its own, or the words would be its reply.
                    self.deliver().await;
                }
                self.server.unsent.extend(&bytes[..cut]);
                let mut turns = 0..TURNS;
                while !self.server.unsent.is_empty() {
                    assert!(turns.next().is_some(), "the task does not read");
                    self.server.written += self.server.write(usize::MAX).await;
                    tokio::task::yield_now().await;
                }
                let stream = self.server.stream.take();
                if cut < bytes.len() {
                    return "";
                }
                self.open = stream;
                reason
            }
            WireEnd::Fault(fault) => {
                // A panic of a writing sender takes place within `Wire::begin`.
                self.end_write();
                if let SocketFault::Write = fault {
                    // A sender finds the error while replies to others have arrived.
                    self.serve(usize::MAX).await;
                    self.step(WireStep::Send(1, CommandKind::One, false)).await;
                    self.step(WireStep::BeginWrite).await;
                }
                *self.socket.fault.lock().unwrap() = Some(fault);
                self.end_write();
                if let SocketFault::Read = fault {
                    let driver = self.wire.0.lock().driver.clone();
                    driver.inspect(Waker::wake_by_ref);
                    return "timed out";
                }
                if let SocketFault::Panic = fault {
                    self.excuse_all();
                }
                // There is something to write.
                let begin = || Sender::begin(&self.wire, self.sent, CommandKind::One, false);
                match catch_unwind(AssertUnwindSafe(begin)) {
                    Ok(Ok(mut sender)) => {
                        sender.may_fail = true;
                        self.senders.push(sender);
                    }
                    Ok(Err(error)) => panic!("{error}"),
                    Err(_) => self.lost = 1,
                }
                if let SocketFault::Write = fault {
                    "reset"
                } else {
                    "panic"
                }
            }
            WireEnd::Command => {
                let panics = |words: &mut Words<'_>| {
                    words.command(&[&[b"ECHO"]]);
                    panic!("a command");
                };
                let begin = || self.wire.begin(&panics, None, false).is_ok();
                assert!(catch_unwind(AssertUnwindSafe(begin)).is_err());
                self.excuse_all();
                self.lost = 1;
                "panicked"
            }
        }
    }

    /// Awaits all senders: nothing but the wakes of the wire lets them and its task run.
    async fn deliver(&mut self) {
        let senders = mem::take(&mut self.senders);
        // A task of its own, which has not polled them before.
        let delivering = tokio::spawn(async move {
            let mut delivered = Vec::new();
            for mut sender in senders {
                let replies = (&mut sender.replies).await;
                delivered.push((sender, replies));
            }
            delivered
        });
        let mut turns = 0..TURNS;
        while !delivering.is_finished() {
            assert!(turns.next().is_some(), "a sender waits for ever");
            self.serve(usize::MAX).await;
            tokio::task::yield_now().await;
        }
        for (sender, replies) in delivering.await.unwrap() {
            self.check(&sender, replies);
        }
        // The replies to senders that have left.
        let mut turns = 0..TURNS;
        while !self.wire.0.lock().in_flight.is_empty() {
            assert!(turns.next().is_some(), "the task has stopped");
            self.server.serve(usize::MAX).await;
            tokio::task::yield_now().await;
        }
    }

    /// All places are free, and the task ends with the connection.
    async fn finish(mut self, reason: &str) {
        self.end_write();
        self.deliver().await;
        settle().await;
        if self.has_ended {
            assert_ended(&self.wire, reason);
        }
        {
            let state = self.wire.0.lock();
            assert_eq!(state.slots.used(), self.lost);
            assert_eq!((state.in_flight.len(), state.queue.len()), (0, 0));
            assert_eq!(state.output.is_none(), self.has_ended);
            assert!(state.output.as_ref().is_none_or(WireOutput::is_empty));
        }
        let shared = Arc::clone(&self.wire.0);
        drop(self.wire);
        settle().await;
        assert_eq!(Arc::strong_count(&shared), 1, "the task has not ended");
    }
}

/// Every further command fails with the reason, and breaks the connection: only then does the owner connect again.
fn assert_ended(wire: &Wire, reason: &str) {
    for _ in 0..2 {
        let error = wire.begin(&said("late"), None, false).err().unwrap();
        assert!(breaks_connection(&error), "{error}");
        assert!(error.to_string().contains(reason), "{reason}: {error}");
        assert!(
            error.is_connection_dropped() || !reason.is_empty(),
            "{error}"
        );
        wire.close();
    }
}

async fn run(steps: Vec<WireStep>, end: WireEnd, buffer: usize, early_flush: usize) {
    let mut schedule = Schedule::new(buffer, early_flush);
    for step in steps {
        schedule.step(step).await;
    }
    let reason = schedule.end(end).await;
    // A sender may end its write, or leave, once the task has found the end.
    for _ in 0..schedule.sent % 4 {
        tokio::task::yield_now().await;
    }
    schedule.finish(reason).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, max_shrink_iters: 20, ..ProptestConfig::default() })]
    #[test]
    fn each_reply_reaches_its_own_sender_or_none(
        steps in steps(),
        end in end(),
        buffer in prop_oneof![Just(64_usize), Just(1_024), Just(1 << 17)],
        early_flush in prop_oneof![Just(EARLY_FLUSH), Just(usize::MAX)],
    ) {
        timed_runtime().block_on(run(steps, end, buffer, early_flush));
    }
}

/// Lone, paired and batched commands; replies that are cut, or precede words.
#[test]
fn a_stream_cut_at_any_byte_gives_each_sender_its_replies_or_an_error() {
    let cuts = (0..80).map(|cut| (cut, WireEnd::Cut));
    let says = (0..WORDS.len()).flat_map(|words| {
        let length = WORDS[words].0.len();
        (0..=length).map(move |cut| (0, WireEnd::Says(words, cut)))
    });
    for (cut, end) in cuts.chain(says) {
        let send = |count, kind| WireStep::Send(count, kind, false);
        let mut steps = vec![send(1, CommandKind::One), send(1, CommandKind::Pair)];
        steps.extend([
            send(3, CommandKind::InBatch),
            WireStep::Run(4),
            WireStep::Serve(cut),
        ]);
        timed_runtime().block_on(run(steps, end, 1 << 16, EARLY_FLUSH));
    }
}
