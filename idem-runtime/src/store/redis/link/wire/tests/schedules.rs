//! Random schedules of senders, a server and the task: each reply reaches its own sender or none.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::peer::{Kind, Peer, Sender, number};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// Senders begin this many commands.
    Send(usize, Kind, bool),
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

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = || prop_oneof![Just(Kind::One), Just(Kind::Pair), Just(Kind::InBatch)];
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

/// A peer at the other end of a stream.
struct Server {
    stream: DuplexStream,
    peer: Peer,
    unsent: Vec<u8>,
}

impl Server {
    async fn serve(&mut self, mut most: usize) {
        let mut bytes = [0; 4_096];
        while let Some(Ok(read @ 1..)) = poll_once(pin!(self.stream.read(&mut bytes))).await {
            self.unsent
                .extend(self.peer.receive(&bytes[..read]).concat());
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
        sender.check(replies, &server.peer);
    }
}

async fn run(steps: Vec<Step>, buffer: usize, early_flush: usize) {
    let (here, there) = tokio::io::duplex(buffer);
    let wire = over(here, LONG);
    wire.0.lock().early_flush = early_flush;
    let mut server = Server {
        stream: there,
        peer: Peer::default(),
        unsent: Vec::new(),
    };
    let (mut senders, mut sent) = (Vec::new(), 0);
    let mut closed = false;
    let mut output = None;
    for step in steps {
        match step {
            Step::Send(count, kind, claims) => {
                for _ in 0..count {
                    let sender = Sender::begin(&wire, sent, kind, claims).unwrap();
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
            // The others are polled at the end of the schedule only.
            if number(&sender.words[0]).is_multiple_of(3)
                && let Some(replies) = poll_once(Pin::new(&mut sender.replies)).await
            {
                senders.swap_remove(at).check(replies, &server.peer);
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
    server.peer.assert_executed_once();
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
