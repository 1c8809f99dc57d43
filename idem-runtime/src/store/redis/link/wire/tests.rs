//! A wire and a server that replies with bytes of the test.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{OnceLock, Weak};
use std::task::Waker;

use redis::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::runtime;

use super::frame::{self, Frame};
use super::output::Output;
use super::state::EARLY_FLUSH;
use super::wakers::Wakers;
use super::*;
use crate::store::redis::failure::breaks_connection;
use crate::store::redis::link::echo::{bulk, poll_once, said, settle, timed_runtime};

mod ends;
mod schedules;
mod sockets;
mod writes;

/// Longer than any test.
const LONG: Duration = Duration::from_hours(1);
/// Bound of a wait that must end by itself.
const BOUND: Duration = Duration::from_secs(20);

/// For the tests of both connections.
impl Wire {
    pub(in crate::store::redis::link) fn counts(&self) -> [usize; 3] {
        let state = self.0.lock();
        let users = Arc::strong_count(&self.0);
        [state.in_flight.len(), state.queue.len(), users]
    }

    pub(in crate::store::redis::link) fn shared(&self) -> Arc<dyn Any> {
        Arc::clone(&self.0) as _
    }
}

/// Longest text of a reply that is kept.
const TEXT_BYTES: usize = 1 << 20;

fn within(response: Duration) -> Limits {
    Limits {
        connect: LONG,
        response,
        text_bytes: TEXT_BYTES,
    }
}

fn over(stream: DuplexStream, response: Duration) -> Wire {
    let (read, write) = tokio::io::split(stream);
    Wire::new(read, write, within(response))
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

/// What the server has received so far, as text.
async fn arrived(server: &mut DuplexStream) -> String {
    let mut bytes = vec![0; 4_096];
    let read = pin!(server.read(&mut bytes));
    let length = match poll_once(read).await {
        Some(length) => length.unwrap(),
        None => 0,
    };
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

/// Takes the complete commands out of these bytes: their words.
fn take_commands(received: &mut Vec<u8>) -> Vec<Vec<String>> {
    let text = |word| match word {
        Value::BulkString(word) => String::from_utf8(word).unwrap(),
        word => panic!("{word:?}"),
    };
    let (mut commands, mut at) = (Vec::new(), 0);
    while let Frame::Reply(Value::Array(words), length) = frame::first(&received[at..]).unwrap() {
        commands.push(words.into_iter().map(text).collect());
        at += length;
    }
    received.drain(..at);
    commands
}

fn batch_script() -> Arc<BatchScript> {
    let (one, many) = ("one".to_owned(), "many".to_owned());
    Arc::new(BatchScript { one, many })
}

/// The reply of a script of batches that does not execute each key.
fn batch_reply(keys: &[String], is_executed: impl Fn(&str) -> bool) -> String {
    let left = keys.iter().zip(1..).filter(|(key, _)| !is_executed(key));
    let left: Vec<_> = left.map(|(_, at)| format!(":{at}\r\n")).collect();
    match (&left[..], keys.len()) {
        ([], _) => ":1\r\n".to_owned(),
        (_, 1) => ":0\r\n".to_owned(),
        _ => format!("*{}\r\n{}", left.len(), left.concat()),
    }
}

/// `first_of`: the first command of the pair whose second one this is.
fn assert_executed_once(executed: &[String], first_of: impl Fn(&str) -> Option<String>) {
    let mut times = HashMap::new();
    for (at, word) in executed.iter().enumerate() {
        *times.entry(word).or_insert(0) += 1;
        if let Some(first) = first_of(word) {
            assert_eq!(executed[at - 1], first, "a pair is together");
        }
    }
    assert!(times.values().all(|times| *times == 1), "executed twice");
}

/// The written half of a connection, and what happens before a write.
struct Hooked<F> {
    half: tokio::io::WriteHalf<DuplexStream>,
    before: F,
}

impl<F: FnMut() -> io::Result<()> + Unpin> AsyncWrite for Hooked<F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        (self.before)()?;
        Pin::new(&mut self.half).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_lone_command_is_written_by_its_sender() {
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let wire = over(here, LONG);
    let _one = begin(&wire, "one");
    assert_eq!(
        arrived(&mut server).await,
        "*2\r\n$4\r\nECHO\r\n$3\r\none\r\n"
    );
    // The next ones wait for the task, and for each other.
    let _two = begin(&wire, "two");
    let _three = begin(&wire, "three");
    assert_eq!(wire.0.lock().queue.len(), 2);
    settle().await;
    let arrived = arrived(&mut server).await;
    assert!(arrived.contains("two") && arrived.contains("three"));
}

/// Claims that arrive while no reply does, after a flush that has left none.
#[tokio::test]
async fn claims_behind_a_silent_server_are_a_crowd() {
    let (here, _server) = tokio::io::duplex(1 << 16);
    let wire = over(here, LONG);
    let hurried = Admission::new(Duration::ZERO);
    let claim = |_| wire.begin(&said("claim"), None, true).unwrap();
    let mut claims: Vec<_> = (0..MAX_IN_FLIGHT).map(claim).collect();
    settle().await;
    assert!(wire.crowded(&hurried).is_none());
    claims.push(claim(MAX_IN_FLIGHT));
    settle().await;
    assert!(wire.crowded(&hurried).is_some());
}

#[tokio::test]
async fn a_reply_that_is_late_is_an_error_and_is_given_to_no_other() {
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let wire = over(here, Duration::from_millis(20));
    let (one, two) = (begin(&wire, "one"), begin(&wire, "two"));
    for late in [one, two] {
        assert!(first_of(late).await.unwrap_err().is_timeout());
    }
    // The replies come after all, and then that of another command.
    wire.0.lock().response = LONG;
    let three = begin(&wire, "three");
    settle().await;
    let replies = b"$3\r\none\r\n$3\r\ntwo\r\n$5\r\nthree\r\n";
    server.write_all(replies).await.unwrap();
    assert_eq!(first_of(three).await.unwrap(), bulk("three"));
    assert_eq!(wire.0.lock().slots.used(), 0);
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

/// A paused clock can be ahead of the one by which commands end.
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

/// All replies arrive at once, and none wakes the task again.
#[tokio::test]
async fn commands_behind_many_whose_senders_have_left_are_sent() {
    let (here, mut server) = tokio::io::duplex(1 << 20);
    let wire = over(here, LONG);
    let claim = |word| wire.begin(&said(word), None, true).unwrap();
    let mut claims: Vec<_> = (0..MAX_IN_FLIGHT).map(|_| claim("sent")).collect();
    until(|| wire.0.lock().in_flight.len() == MAX_IN_FLIGHT).await;
    claims.extend((0..MAX_IN_FLIGHT).map(|_| claim("left")));
    let last = claim("last");
    claims.truncate(MAX_IN_FLIGHT);
    let replies = "$4\r\nsent\r\n".repeat(MAX_IN_FLIGHT);
    server.write_all(replies.as_bytes()).await.unwrap();
    for claim in claims {
        assert_eq!(first_of(claim).await.unwrap(), bulk("sent"));
    }
    settle().await;
    assert_eq!(wire.0.lock().queue.len(), 0);
    server.write_all(b"$4\r\nlast\r\n").await.unwrap();
    assert_eq!(first_of(last).await.unwrap(), bulk("last"));
    assert_eq!(wire.0.lock().slots.used(), 0);
}

/// Nothing more can be sent on a connection whose commands in flight all had no reply.
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

/// The runtime that connected exists and is not driven, as between two calls of `block_on`.
#[test]
fn a_stalled_runtime_delays_no_other_beyond_the_time_limit() {
    let stalled = timed_runtime();
    let (wire, mut server) = stalled.block_on(async {
        let (here, there) = tokio::io::duplex(1 << 16);
        (over(here, Duration::from_millis(20)), there)
    });
    wire.0.lock().early_flush = EARLY_FLUSH;
    timed_runtime().block_on(async {
        let words = [["lone"; 1].as_slice(), &["queued"; 2 * EARLY_FLUSH]].concat();
        let sent: Vec<_> = words.iter().map(|word| begin(&wire, word)).collect();
        for pending in sent {
            let late = tokio::time::timeout(BOUND, first_of(pending)).await;
            assert!(late.expect("it has a time limit").unwrap_err().is_timeout());
        }
        // No further one can be executed while no reply is read.
        let arrived = arrived(&mut server).await;
        assert!(arrived.contains("lone") && !arrived.contains("queued"));
    });
    drop(server);
    // The senders left no place behind.
    stalled.block_on(settle());
    assert_eq!(wire.0.lock().slots.used(), 0);
}

/// Commands behind a task that does not run. Some senders wait for the time limit, others leave before it.
#[test]
fn a_sender_knows_how_long_a_stalled_runtime_took() {
    let limit = Duration::from_secs(1);
    let stalled = timed_runtime();
    let (wire, _server) = stalled.block_on(async {
        let (here, there) = tokio::io::duplex(1 << 16);
        (over(here, limit), there)
    });
    timed_runtime().block_on(async {
        let mut lone = begin(&wire, "lone");
        let mut queued = begin(&wire, "queued");
        for pending in [&mut lone, &mut queued] {
            assert!(poll_once(Pin::new(&mut *pending)).await.is_none());
            let waited = pending.waited().expect("no reply has arrived");
            assert!(waited < limit);
        }
        let late = (&mut lone).await.map(|replies| replies.first);
        assert!(late.unwrap_err().is_timeout());
        assert_eq!(lone.waited(), None, "it has its error");
        let waited = queued.waited().expect("no reply has arrived");
        assert!(waited >= limit / 2, "{waited:?}");
    });
    // A task that runs has the time limit.
    let queued = begin(&wire, "queued");
    assert_eq!(queued.waited(), None);
    stalled.block_on(settle());
    assert!(queued.waited().is_some(), "it is in flight");
}

/// A server whose reply is a text of zeros, and then another one; and the most room that a read of it had.
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
        let wire = Wire::new(read, tokio::io::sink(), within(LONG));
        let (text, next) = (begin(&wire, "text"), begin(&wire, "next"));
        assert!(first_of(text).await.unwrap() == expected, "{length}");
        assert_eq!(first_of(next).await.unwrap(), Value::Int(7));
        assert!(most.load(Ordering::SeqCst) <= 2 * TEXT_BYTES, "{length}");
    }
}
