//! A connection ends: for each sender with an error that breaks it and tells the reason.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Wake;

use redis::RedisError;

use super::*;

/// The owner of the connection replaces it on such an error only, so no other may come from a connection that has ended,
/// and none after its owner has closed it.
async fn assert_ended(wire: &Wire, case: &str, reason: &str) {
    settle().await;
    for _ in 0..2 {
        let error = wire.begin(&said("late"), None, false).err().unwrap();
        assert!(breaks_connection(&error), "{case}: {error}");
        assert!(error.to_string().contains(reason), "{case}: {error}");
        let is_dropped = error.is_connection_dropped();
        assert!(is_dropped || !reason.is_empty(), "{case}: {error}");
        wire.close();
    }
}

/// What a server sends, which is cut anywhere: its name; the number of replies that each command in flight has; the replies
/// to the first of them; what ends the connection though the server does not; the reason of that.
type Script = (
    &'static str,
    &'static [u8],
    &'static [&'static [u8]],
    &'static [u8],
    &'static str,
);

const ALL: &[&[u8]] = &[
    b"$3\r\none\r\n",
    b"*2\r\n$1\r\na\r\n$-1\r\n:3\r\n",
    b"-ERR four\r\n+five\r\n",
];
const PUSH: &[&[u8]] = &[b">2\r\n+invalidate\r\n_\r\n$3\r\none\r\n", b":2\r\n"];
const FULL: &[u8] = b"-ERR max number of clients reached\r\n";
const HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n";
const LOADING: &[u8] = b"-LOADING Redis is loading\r\n";
const NO_PASSWORD: &[u8] = b"-NOAUTH Authentication required.\r\n";

const SCRIPTS: [Script; 13] = [
    ("all replies", &[1, 2, 2], ALL, b"", ""),
    ("a reply of three", &[1, 1, 1], &[ALL[0]], b"", ""),
    ("a push", &[1, 1], PUSH, b"", ""),
    ("last words", &[1, 1], &[FULL], b"", ""),
    ("another protocol", &[1, 1], &[b":1\r\n"], HTTP, ""),
    // What the client library refuses.
    ("no boolean", &[1], &[], b"#x\r\n", "Parse error"),
    ("no double", &[1], &[], b",abc\r\n", "Parse error"),
    ("no text", &[1], &[], b"-ERR \xff\r\n", "Parse error"),
    ("no format", &[1], &[], b"=3\r\nabc\r\n", "Parse error"),
    // What replies to no command.
    ("a reply", &[], &[], b"$1\r\nx\r\n", ""),
    ("loading", &[], &[], LOADING, "Redis is loading"),
    (
        "no password",
        &[],
        &[],
        NO_PASSWORD,
        "Authentication required.",
    ),
    ("full", &[], &[], FULL, "max number of clients reached"),
];

/// The replies of these bytes, without pushes.
fn values(mut bytes: &[u8]) -> Vec<Value> {
    let mut values = Vec::new();
    while !bytes.is_empty() {
        let length = match frame::first(bytes).unwrap() {
            Frame::Reply(value, length) => {
                values.push(value);
                length
            }
            Frame::Push(length) => length,
            Frame::Partial => panic!("a reply is cut"),
        };
        bytes = &bytes[length..];
    }
    values
}

#[tokio::test]
async fn a_stream_cut_at_any_byte_gives_each_sender_its_replies_or_an_error() {
    for script in SCRIPTS {
        for cut in 0..=script.2.concat().len() + script.3.len() {
            assert_cut(&script, cut).await;
        }
    }
}

async fn assert_cut((name, commands, replies, end, reason): &Script, cut: usize) {
    let name = format!("{name}, cut at {cut}");
    let bytes = [&replies.concat(), *end].concat();
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let wire = over(here, LONG);
    let begin = |replies: &u8| {
        let second = said("second");
        let second = (*replies == 2).then_some(&second as &WriteCommand<'_>);
        wire.begin(&said("first"), second, false).unwrap()
    };
    let sent: Vec<_> = commands.iter().map(begin).collect();
    settle().await;
    server.write_all(&bytes[..cut]).await.unwrap();
    // The whole script may end the connection, and else the server does.
    let ends_itself = cut == bytes.len() && !end.is_empty();
    let mut server = Some(server);
    if !ends_itself {
        server = None;
    }
    let reason = if ends_itself { *reason } else { "" };
    let assert_breaks = |error: &RedisError| {
        assert!(breaks_connection(error), "{name}: {error}");
        let is_dropped = error.is_connection_dropped();
        assert!(is_dropped || !reason.is_empty(), "{name}: {error}");
    };
    let mut until = 0;
    for (at, pending) in sent.into_iter().enumerate() {
        let expected = replies.get(at);
        until += expected.map_or(1, |reply| reply.len());
        let has_arrived = expected.is_some() && cut >= until;
        match pending.await {
            Ok(replies) => {
                assert!(has_arrived, "{name}: a reply of another");
                let replies: Vec<_> = [replies.first].into_iter().chain(replies.second).collect();
                assert_eq!(Some(replies), expected.map(|reply| values(reply)), "{name}");
            }
            Err(error) => {
                assert!(!has_arrived, "{name}: {error}");
                assert_breaks(&error);
            }
        }
    }
    assert_ended(&wire, &name, reason).await;
    if let Some(server) = &mut server {
        assert!(!arrived(server).await.contains("late"), "{name}");
    }
    let state = wire.0.lock();
    assert_eq!(state.slots.used(), 0, "{name}");
    assert!(state.output.is_none(), "{name}");
}

/// A socket whose keepalive probes have no reply.
struct DeadPeer;

impl AsyncRead for DeadPeer {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

#[tokio::test]
async fn a_time_out_of_the_network_ends_the_connection() {
    let wire = Wire::new(DeadPeer, tokio::io::sink(), within(LONG));
    assert_ended(&wire, "a dead peer", "timed out").await;
}

/// The server does not close its side when the output is dropped.
#[tokio::test]
async fn a_panic_of_a_senders_write_ends_the_connection() {
    let (here, _server) = tokio::io::duplex(1 << 16);
    let (read, half) = tokio::io::split(here);
    let before = || panic!("a write");
    let wire = Wire::new(read, Hooked { half, before }, within(LONG));
    settle().await;
    let panic = catch_unwind(AssertUnwindSafe(|| begin(&wire, "one")));
    assert!(panic.is_err());
    assert_ended(&wire, "a panic", "panicked").await;
    assert_eq!(Arc::strong_count(&wire.0), 1, "the task");
}

#[tokio::test]
async fn a_panic_of_a_command_ends_the_connection() {
    let panics = |words: &mut Words<'_>| {
        words.command(&[&[b"ECHO"]]);
        panic!("a command");
    };
    for commands in [0, 1, 2] {
        let (here, _server) = tokio::io::duplex(1 << 16);
        let wire = over(here, LONG);
        let sent: Vec<_> = (0..commands).map(|_| begin(&wire, "one")).collect();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            wire.begin(&panics, None, false).is_ok()
        }));
        assert!(panic.is_err());
        assert_ended(&wire, "a panic", "panicked").await;
        for lost in sent {
            let lost = tokio::time::timeout(BOUND, first_of(lost)).await;
            let error = lost.expect("an error").unwrap_err();
            assert!(error.to_string().contains("panicked"), "{error}");
        }
    }
}

/// A task that panics when it is woken, or not.
struct Counting {
    wakes: AtomicUsize,
    panics: bool,
}

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "a waker");
    }
}

#[tokio::test]
async fn a_waker_that_panics_keeps_no_other_sender_from_its_reply() {
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let wire = over(here, LONG);
    let mut sent = ["one", "two", "six"].map(|word| begin(&wire, word));
    settle().await;
    let wakers = [false, true, false].map(|panics| {
        Arc::new(Counting {
            wakes: AtomicUsize::new(0),
            panics,
        })
    });
    for (pending, waker) in sent.iter_mut().zip(&wakers) {
        let waker = Waker::from(Arc::clone(waker));
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(pending).poll(&mut cx).is_pending());
    }
    server
        .write_all(b"$3\r\none\r\n$3\r\ntwo\r\n$3\r\nsix\r\n")
        .await
        .unwrap();
    settle().await;
    let woken = wakers.map(|waker| waker.wakes.load(Ordering::SeqCst));
    assert_eq!(woken, [1, 1, 1]);
}
