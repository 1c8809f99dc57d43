//! A wire and a server that replies with bytes of the test.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, OnceLock, Weak};
use std::task::Waker;

use redis::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf};
use tokio::runtime;

use super::frame::{self, Frame};
use super::slots::Wakers;
use super::state::{EARLY_FLUSH, WireOutput};
use super::*;
use crate::store::redis::failure::breaks_connection;

mod peer;
mod schedules;

/// Longer than any test.
const LONG: Duration = Duration::from_hours(1);
/// Bound of a wait that must end by itself.
const BOUND: Duration = Duration::from_secs(300);

fn said(word: &str) -> impl Fn(&mut Words<'_>) + Send + Sync {
    move |words| words.command(&[&[b"ECHO", word.as_bytes()]])
}

fn bulk(word: &str) -> Value {
    Value::BulkString(word.as_bytes().to_vec())
}

fn timed_runtime() -> runtime::Runtime {
    let mut builder = runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

/// Lets every task run as far as it can.
async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// Polls once, whatever else the task has polled.
async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let once = std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    });
    tokio::task::unconstrained(once).await
}

/// Longest text of a reply that is kept.
const TEXT_BYTES: usize = 1 << 20;

fn within(response: Duration) -> ConnectionLimits {
    ConnectionLimits {
        connect: LONG,
        response,
        text_bytes: TEXT_BYTES,
    }
}

fn over(stream: DuplexStream, response: Duration) -> Wire {
    let (read, write) = tokio::io::split(stream);
    Wire::new(read, write, within(response), None)
}

/// Lets the tasks run until it holds.
async fn until(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < BOUND, "it does not come to that");
        tokio::task::yield_now().await;
    }
}

fn begin(wire: &Wire, word: &str) -> PendingReplies {
    wire.begin(&said(word), None, false).unwrap()
}

async fn first_of(pending: PendingReplies) -> RedisResult<Value> {
    pending.await.map(|replies| replies.first)
}

/// The bytes that the server has received so far, as text.
async fn arrived(server: &mut DuplexStream) -> String {
    let mut bytes = vec![0; 4_096];
    let read = pin!(server.read(&mut bytes));
    let length = match poll_once(read).await {
        Some(length) => length.unwrap(),
        None => 0,
    };
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

fn batch_script() -> Arc<BatchScript> {
    let (one, many) = ("one".to_owned(), "many".to_owned());
    Arc::new(BatchScript { one, many })
}

/// A fault of the next read or write.
#[derive(Clone, Copy, Debug)]
enum SocketFault {
    /// The network has given the server up, which has sent nothing more.
    Read,
    /// The server has reset the connection: a socket has that error once.
    Write,
    Closed,
    Panic,
}

/// Faults of a socket; its writes assert that the lock is free.
#[derive(Default)]
struct Socket {
    fault: Mutex<Option<SocketFault>>,
    wire: OnceLock<Weak<Shared>>,
}

struct FaultyHalf<T>(T, Arc<Socket>);

fn faulty(stream: DuplexStream) -> (Wire, Arc<Socket>) {
    let socket = Arc::new(Socket::default());
    let (read, write) = tokio::io::split(stream);
    let (read, write) = (
        FaultyHalf(read, Arc::clone(&socket)),
        FaultyHalf(write, Arc::clone(&socket)),
    );
    let wire = Wire::new(read, write, within(LONG), None);
    assert!(socket.wire.set(Arc::downgrade(&wire.0)).is_ok());
    (wire, socket)
}

impl AsyncRead for FaultyHalf<ReadHalf<DuplexStream>> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.0).poll_read(cx, buffer);
        match *self.1.fault.lock().unwrap() {
            Some(SocketFault::Read) if read.is_pending() => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            _ => read,
        }
    }
}

impl AsyncWrite for FaultyHalf<WriteHalf<DuplexStream>> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(wire) = self.1.wire.get().and_then(Weak::upgrade) {
            let is_locked = wire.state.try_lock().is_none();
            assert!(!is_locked, "a write has the lock");
        }
        let fault = *self.1.fault.lock().unwrap();
        match fault {
            Some(SocketFault::Write) => {
                *self.1.fault.lock().unwrap() = Some(SocketFault::Closed);
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            Some(SocketFault::Closed) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Some(SocketFault::Panic) => panic!("a write"),
            Some(SocketFault::Read) | None => Pin::new(&mut self.0).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Commands sent before the task runs, behind a lone received one.
struct Burst {
    wire: Wire,
    server: DuplexStream,
    sent: Vec<PendingReplies>,
}

impl Burst {
    async fn begin(early_flush: usize) -> Self {
        let (here, mut server) = tokio::io::duplex(1 << 20);
        let wire = over(here, LONG);
        wire.0.lock().early_flush = early_flush;
        let sent = vec![begin(&wire, "word")];
        assert_eq!(
            arrived(&mut server).await,
            "*2\r\n$4\r\nECHO\r\n$4\r\nword\r\n",
            "its sender has written it"
        );
        Self { wire, server, sent }
    }

    fn send(&mut self, count: usize) {
        let sent = (0..count).map(|_| begin(&self.wire, "word"));
        self.sent.extend(sent);
    }

    fn send_in_batch(&mut self, count: usize) {
        let script = batch_script();
        let send = |key: usize| {
            let command = BatchCommand {
                script: &script,
                key: &key.to_be_bytes(),
                arguments: [b"", b""],
            };
            self.wire.begin_in_batch(&command).unwrap()
        };
        self.sent.extend((0..count).map(send));
    }

    /// Number of queued commands, and of arrived ones outside of batches.
    async fn queued_and_arrived(&mut self) -> (usize, usize) {
        let arrived = arrived(&mut self.server).await.matches("word").count();
        (self.wire.0.lock().queue.len(), arrived)
    }
}

/// Queues commands, and takes the output if their sender flushes them.
fn begin_write(shared: &Shared) -> Option<WireOutput> {
    let mut state = shared.lock();
    for _ in 0..EARLY_FLUSH {
        let slot = state.slots.add();
        let ping = |out: &mut Vec<u8>| out.extend(b"*1\r\n$4\r\nPING\r\n");
        state.queue.push(slot, 1, true, ping);
    }
    state.flush_early(shared)
}

#[tokio::test]
async fn a_sender_writes_a_queue_that_is_long_beside_what_is_in_flight() {
    let mut burst = Burst::begin(EARLY_FLUSH).await;
    for due in [4, 4, 4, 6, 9, 14, 21, 31] {
        burst.send(due - 1);
        assert_eq!(burst.queued_and_arrived().await, (due - 1, 0));
        burst.send(1);
        assert_eq!(burst.queued_and_arrived().await, (0, due));
        assert_eq!(burst.wire.0.lock().last_batch, due);
    }
    // The others are the task's, and so are batches, which cost the server less when they are larger.
    burst.send(5);
    assert_eq!(burst.queued_and_arrived().await, (5, 0));
    settle().await;
    assert_eq!(burst.queued_and_arrived().await, (0, 5));
    let mut burst = Burst::begin(EARLY_FLUSH).await;
    burst.send_in_batch(10);
    burst.send(3);
    assert_eq!(burst.queued_and_arrived().await, (13, 0));
    burst.send(1);
    assert_eq!(burst.queued_and_arrived().await, (10, 4));
    // On a single processor all are.
    let mut burst = Burst::begin(usize::MAX).await;
    burst.send(108);
    assert_eq!(burst.queued_and_arrived().await, (108, 0));
}

#[tokio::test]
async fn a_sender_flushes_no_claim_into_the_last_places() {
    let mut burst = Burst::begin(EARLY_FLUSH).await;
    burst.send(2 * MAX_IN_FLIGHT);
    assert!(burst.wire.0.lock().in_flight.len() < MAX_IN_FLIGHT);
    let mut burst = Burst::begin(EARLY_FLUSH).await;
    burst.send_in_batch(MAX_IN_FLIGHT - EARLY_FLUSH);
    burst.send(EARLY_FLUSH);
    assert_eq!(burst.queued_and_arrived().await.1, 0);
}

/// A sender's thread is interrupted in a write until the task runs. Another one then writes too early for the task:
/// before its next turn, or between its wake and the turn after.
#[tokio::test]
async fn senders_do_not_keep_the_task_from_the_output() {
    for is_spawned in [false, true] {
        let mut burst = Burst::begin(EARLY_FLUSH).await;
        burst.send_in_batch(1);
        let output = begin_write(&burst.wire.0).expect("it is due");
        settle().await;
        burst.wire.0.write(output);
        let shared = Arc::clone(&burst.wire.0);
        let writes = async move {
            if let Some(output) = begin_write(&shared) {
                settle().await;
                shared.write(output);
            }
        };
        if is_spawned {
            tokio::spawn(writes).await.unwrap();
        } else {
            writes.await;
        }
        settle().await;
        assert_eq!(burst.wire.0.lock().queue.len(), 0);
        let received = arrived(&mut burst.server).await;
        let (before, _) = received.split_once("one").expect("the completion");
        assert_eq!(before.matches("PING").count(), EARLY_FLUSH);
        burst.send(EARLY_FLUSH + 1);
        let queued = burst.queued_and_arrived().await;
        assert_eq!(queued, (0, EARLY_FLUSH + 1), "a sender flushes again");
    }
}

/// Claims without replies, after a flush that left none. Completions overtake them, and a command whose sender has left
/// is not sent.
#[tokio::test]
async fn claims_behind_a_silent_server_are_a_crowd_that_completions_overtake() {
    let (here, mut server) = tokio::io::duplex(1 << 20);
    let wire = over(here, LONG);
    let hurried = Admission::new(Duration::ZERO);
    let claim = |word: &str| wire.begin(&said(word), None, true).unwrap();
    let _sent: Vec<_> = (0..MAX_IN_FLIGHT).map(|_| claim("sent")).collect();
    // Whether a queue is inspected, which costs a lock.
    let is_crowded = || wire.0.is_crowded.load(Ordering::Relaxed);
    assert!(!is_crowded(), "with commands queued that can be sent");
    settle().await;
    assert!(wire.crowded(&hurried).is_none());
    let queued = [claim("claim"), claim("claim")];
    assert!(is_crowded());
    settle().await;
    let crowd = wire.crowded(&hurried).expect("two are queued");
    assert_eq!(crowd.waiting, 2);
    assert!(!crowd.retry_after.is_zero());
    assert!(wire.crowded(&Admission::new(LONG)).is_none());
    drop(begin(&wire, "gone"));
    let ending = begin(&wire, "ending");
    settle().await;
    let mut sent = vec![0; 1 << 20];
    let length = server.read(&mut sent).await.unwrap();
    assert!(
        sent[..length].ends_with(b"sent\r\n"),
        "nothing more is sent"
    );
    server.write_all(&b"+OK\r\n".repeat(3)).await.unwrap();
    settle().await;
    let queued_since = arrived(&mut server).await;
    let words = queued_since
        .split("\r\n")
        .filter(|line| line.ends_with(['g', 'm', 'e']));
    assert_eq!(words.collect::<Vec<_>>(), ["ending", "claim", "claim"]);
    drop((queued, ending));
}

#[tokio::test]
async fn a_closed_connection_fails_its_queue_and_still_receives_replies() {
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let wire = over(here, LONG);
    let (sent, queued) = (begin(&wire, "sent"), begin(&wire, "queued"));
    wire.close();
    let failed = poll_once(pin!(first_of(queued))).await.expect("at once");
    assert!(failed.unwrap_err().is_connection_dropped());
    server.write_all(b"$4\r\nsent\r\n").await.unwrap();
    assert_eq!(first_of(sent).await.unwrap(), bulk("sent"));
}

/// The task reads in three turns, and writes in the second.
#[tokio::test]
async fn replies_that_have_arrived_are_read_before_a_failed_write_ends_the_connection() {
    let (here, mut server) = tokio::io::duplex(1 << 20);
    let (wire, socket) = faulty(here);
    let sent = ["one", "two"].map(|word| begin(&wire, word));
    settle().await;
    let long = "x".repeat(700_000);
    let replies = format!("${}\r\n{long}\r\n$3\r\ntwo\r\n", long.len());
    server.write_all(replies.as_bytes()).await.unwrap();
    *socket.fault.lock().unwrap() = Some(SocketFault::Write);
    let unsent = begin(&wire, "three");
    let [one, two] = sent.map(first_of);
    assert!(one.await.unwrap() == bulk(&long));
    assert_eq!(two.await.unwrap(), bulk("two"));
    let error = first_of(unsent).await.unwrap_err();
    assert!(error.to_string().contains("reset"), "{error}");
}

/// A writer that keeps bytes, as that of TLS: it writes when it is flushed, and not at once then.
struct Keeping {
    half: WriteHalf<DuplexStream>,
    kept: Vec<u8>,
    is_asked: bool,
}

impl AsyncWrite for Keeping {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.kept.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.is_asked = !this.is_asked;
        if this.is_asked {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut this.half).poll_write(cx, &this.kept))?;
        assert_eq!(written, this.kept.len());
        this.kept.clear();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The first command is written by its sender, whose context wakes nothing; the next ones by the task.
#[tokio::test]
async fn bytes_that_the_writer_keeps_are_flushed() {
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let (read, half) = tokio::io::split(here);
    let writer = Keeping {
        half,
        kept: Vec::new(),
        is_asked: false,
    };
    let wire = Wire::new(read, writer, within(LONG), None);
    let sent = ["one", "two", "three"].map(|word| begin(&wire, word));
    settle().await;
    assert_eq!(arrived(&mut server).await.matches("ECHO").count(), 3);
    assert!(
        wire.0
            .lock()
            .output
            .as_ref()
            .is_some_and(WireOutput::is_empty)
    );
    drop(sent);
}

#[tokio::test]
async fn a_lone_command_after_a_pause_has_a_time_limit() {
    let (here, _server) = tokio::io::duplex(1 << 16);
    let wire = over(here, Duration::from_millis(5));
    for _ in 0..3 {
        let late = tokio::time::timeout(BOUND, first_of(begin(&wire, "alone"))).await;
        assert!(late.expect("it has a time limit").unwrap_err().is_timeout());
        until(|| !wire.0.lock().is_timed).await;
        // Late replies would end the wait; a lone command has none in flight before it.
        wire.0.lock().in_flight.clear();
        assert!(wire.0.lock().is_idle());
    }
}

#[test]
fn each_command_has_the_whole_time_limit() {
    let runtime = timed_runtime();
    let limit = Duration::from_secs(1);
    runtime.block_on(async {
        let wire = over(tokio::io::duplex(1 << 16).0, limit);
        let _pending = [begin(&wire, "one"), begin(&wire, "two")];
        let mut state = wire.0.lock();
        state.flush(&mut Vec::new(), &wire.0, Instant::now());
        let start = state.in_flight[0].sent;
        state.in_flight[1].sent = start + limit / 2;
        let mut expire = |after| state.expire(start + after, &mut Wakers::default());
        assert_eq!(expire(limit / 2), Some(start + limit));
        assert_eq!(expire(limit), Some(start + limit * 3 / 2));
        // Nothing is in flight and nothing was sent since the timer was set: it ends.
        assert_eq!(expire(limit * 3 / 2), None);
        assert!(state.in_flight.iter().all(|sent| sent.slot.is_none()));
    });
}

/// A paused clock may precede the one of time limits.
#[tokio::test(start_paused = true)]
async fn a_clock_of_a_test_does_not_keep_the_task_busy() {
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let wire = over(here, LONG);
    let one = begin(&wire, "one");
    settle().await;
    tokio::time::advance(LONG * 2).await;
    let before = wire.0.lock().turns;
    settle().await;
    let turns = wire.0.lock().turns - before;
    assert!(turns < 10, "{turns} turns without anything to do");
    server.write_all(b"$3\r\none\r\n").await.unwrap();
    assert_eq!(first_of(one).await.unwrap(), bulk("one"));
}

/// A connection whose commands in flight all expired can send nothing more.
#[tokio::test]
async fn commands_without_replies_do_not_hold_up_the_queue_for_ever() {
    let (here, _server) = tokio::io::duplex(1 << 20);
    let wire = over(here, Duration::from_millis(500));
    let in_flight: Vec<_> = (0..MAX_IN_FLIGHT).map(|_| begin(&wire, "gone")).collect();
    until(|| wire.0.lock().in_flight.len() == MAX_IN_FLIGHT).await;
    let queued = begin(&wire, "queued");
    drop(in_flight);
    let error = tokio::time::timeout(BOUND, first_of(queued)).await;
    let error = error.expect("it ends").unwrap_err();
    assert!(breaks_connection(&error), "{error}");
}

#[tokio::test]
async fn written_bytes_are_dropped_while_others_are_not_written() {
    let (here, mut server) = tokio::io::duplex(1_024);
    let wire = over(here, LONG);
    settle().await;
    let write = |bytes: &[u8]| {
        let mut state = wire.0.lock();
        let output = state.output.as_mut().unwrap();
        output.bytes.extend_from_slice(bytes);
        output
            .write(&mut Context::from_waker(Waker::noop()))
            .unwrap();
        output.bytes.len()
    };
    let mut expected = vec![b'a'; 4_096];
    write(&expected);
    let mut received = vec![0; 1_024];
    // Without a budget of the runtime, at whose end neither side would have anything to do.
    let rounds = async {
        for round in 0_u16..1_000 {
            expected.extend([b'a' + u8::try_from(round % 26).unwrap(); 1_024]);
            let read = server.read(&mut received).await.unwrap();
            assert!(expected.drain(..read).eq(received[..read].iter().copied()));
            let kept = write(&expected[expected.len() - 1_024..]);
            assert!(kept <= 16 * 1_024, "{kept} bytes after {round} rounds");
        }
    };
    tokio::task::unconstrained(rounds).await;
}

/// The connecting runtime exists and is not driven, as between two `block_on`.
#[test]
fn a_stalled_runtime_delays_no_other_beyond_the_time_limit() {
    let limit = Duration::from_secs(1);
    let stalled = timed_runtime();
    let (wire, mut server) = stalled.block_on(async {
        let (here, there) = tokio::io::duplex(1 << 16);
        (over(here, limit), there)
    });
    wire.0.lock().early_flush = EARLY_FLUSH;
    timed_runtime().block_on(async {
        let words = [["lone"; 1].as_slice(), &["queued"; 2 * EARLY_FLUSH]].concat();
        let mut sent: Vec<_> = words.iter().map(|word| begin(&wire, word)).collect();
        for pending in &mut sent {
            assert!(poll_once(Pin::new(&mut *pending)).await.is_none());
            assert!(pending.waited().is_some(), "no reply has arrived");
        }
        let last = sent.pop().expect("it is queued");
        for pending in &mut sent {
            let late = tokio::time::timeout(BOUND, &mut *pending).await;
            let late = late
                .expect("it has a time limit")
                .map(|replies| replies.first);
            assert!(late.unwrap_err().is_timeout());
            assert_eq!(pending.waited(), None, "it has its error");
        }
        // Its sender may leave before the time limit.
        let waited = last.waited().expect("no reply has arrived");
        assert!(waited >= limit / 2, "{waited:?}");
        // No further one can be executed while no reply is read.
        let arrived = arrived(&mut server).await;
        assert!(arrived.contains("lone") && !arrived.contains("queued"));
    });
    // A task that runs has the time limit.
    let queued = begin(&wire, "queued");
    assert_eq!(queued.waited(), None);
    stalled.block_on(settle());
    assert!(queued.waited().is_some(), "it is in flight");
    // It ends with its runtime, and the commands with it.
    drop(stalled);
    let lost = timed_runtime().block_on(first_of(queued));
    assert!(breaks_connection(&lost.unwrap_err()));
    drop(server);
    assert_eq!(
        wire.0.lock().slots.used(),
        0,
        "the senders left their places"
    );
}

/// A server with a text of zeros, and then another reply; and the most room that a read of it had.
struct LongText {
    bytes: tokio::io::Chain<tokio::io::Take<tokio::io::Repeat>, &'static [u8]>,
    header: Vec<u8>,
    most: Arc<AtomicUsize>,
}

impl AsyncRead for LongText {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.most.fetch_max(buffer.remaining(), Ordering::SeqCst);
        let header = mem::take(&mut self.header);
        if !header.is_empty() {
            buffer.put_slice(&header);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.bytes).poll_read(cx, buffer)
    }
}

#[tokio::test]
async fn a_text_beyond_the_limit_is_discarded_while_it_arrives() {
    for (length, expected) in [
        (TEXT_BYTES, Value::BulkString(vec![0; TEXT_BYTES])),
        (TEXT_BYTES + 1, Value::Int((1 << 20) + 1)),
        (100 << 20, Value::Int(100 << 20)),
    ] {
        let most = Arc::new(AtomicUsize::new(0));
        let read = LongText {
            bytes: tokio::io::repeat(0)
                .take(length as u64)
                .chain(b"\r\n:7\r\n"),
            header: format!("${length}\r\n").into_bytes(),
            most: Arc::clone(&most),
        };
        let wire = Wire::new(read, tokio::io::sink(), within(LONG), None);
        let (text, next) = (begin(&wire, "text"), begin(&wire, "next"));
        assert!(first_of(text).await.unwrap() == expected, "{length}");
        assert_eq!(first_of(next).await.unwrap(), Value::Int(7));
        assert!(most.load(Ordering::SeqCst) <= 2 * TEXT_BYTES, "{length}");
    }
}
