//! A connection ends: for each sender with an error that breaks it and tells the reason.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Wake;

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

/// A server whose bytes are cut anywhere.
struct Script {
    name: &'static str,
    /// The number of replies that each command in flight has.
    commands: &'static [u8],
    /// The replies to the first of them.
    replies: &'static [&'static [u8]],
    /// What ends the connection, though the server does not.
    end: &'static [u8],
    /// The reason of that.
    reason: &'static str,
}

const fn script(
    name: &'static str,
    commands: &'static [u8],
    replies: &'static [&'static [u8]],
    (end, reason): (&'static [u8], &'static str),
) -> Script {
    Script {
        name,
        commands,
        replies,
        end,
        reason,
    }
}

const CLOSED: (&[u8], &str) = (b"", "");

const SCRIPTS: [Script; 13] = [
    script(
        "all replies",
        &[1, 2, 2],
        &[
            b"$3\r\none\r\n",
            b"*2\r\n$1\r\na\r\n$-1\r\n:3\r\n",
            b"-ERR four\r\n+five\r\n",
        ],
        CLOSED,
    ),
    script("a reply of three", &[1, 1, 1], &[b"$3\r\none\r\n"], CLOSED),
    script(
        "a push",
        &[1, 1],
        &[b">2\r\n+invalidate\r\n_\r\n$3\r\none\r\n", b":2\r\n"],
        CLOSED,
    ),
    script(
        "last words",
        &[1, 1],
        &[b"-ERR max number of clients reached\r\n"],
        CLOSED,
    ),
    script(
        "another protocol",
        &[1, 1],
        &[b":1\r\n"],
        (b"HTTP/1.1 400 Bad Request\r\n", ""),
    ),
    // What the client library refuses.
    script("no boolean", &[1], &[], (b"#x\r\n", "Parse error")),
    script("no double", &[1], &[], (b",abc\r\n", "Parse error")),
    script("no text", &[1], &[], (b"-ERR \xff\r\n", "Parse error")),
    script("no format", &[1], &[], (b"=3\r\nabc\r\n", "Parse error")),
    // What replies to no command.
    script("a reply", &[], &[], (b"$1\r\nx\r\n", "")),
    script(
        "loading",
        &[],
        &[],
        (b"-LOADING Redis is loading\r\n", "Redis is loading"),
    ),
    script(
        "no password",
        &[],
        &[],
        (
            b"-NOAUTH Authentication required.\r\n",
            "Authentication required.",
        ),
    ),
    script(
        "full",
        &[],
        &[],
        (
            b"-ERR max number of clients reached\r\n",
            "max number of clients reached",
        ),
    ),
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
        let bytes = [&script.replies.concat(), script.end].concat();
        for cut in 0..=bytes.len() {
            assert_cut(&script, &bytes, cut).await;
        }
    }
}

async fn assert_cut(script: &Script, bytes: &[u8], cut: usize) {
    let name = format!("{}, cut at {cut}", script.name);
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let wire = over(here, LONG);
    let begin = |replies: &u8| {
        let second = said("second");
        let second = (*replies == 2).then_some(&second as &WriteCommand<'_>);
        wire.begin(&said("first"), second, false).unwrap()
    };
    let sent: Vec<_> = script.commands.iter().map(begin).collect();
    settle().await;
    server.write_all(&bytes[..cut]).await.unwrap();
    // The whole script may end the connection, and else the server does.
    let mut server = Some(server);
    let ends_itself = cut == bytes.len() && !script.end.is_empty();
    if !ends_itself {
        server = None;
    }
    let reason = if ends_itself { script.reason } else { "" };
    let mut end = 0;
    for (at, pending) in sent.into_iter().enumerate() {
        let expected = script.replies.get(at).map(|reply| {
            end += reply.len();
            (end, values(reply))
        });
        let replies = pending.await;
        match (replies, expected) {
            (Ok(replies), Some((end, expected))) => {
                let replies: Vec<_> = [replies.first].into_iter().chain(replies.second).collect();
                assert_eq!(replies, expected, "{name}");
                assert!(cut >= end, "{name}");
            }
            (Err(error), expected) => {
                assert!(breaks_connection(&error), "{name}: {error}");
                let is_dropped = error.is_connection_dropped();
                assert!(is_dropped || !reason.is_empty(), "{name}: {error}");
                assert!(expected.is_none_or(|(end, _)| cut < end), "{name}: {error}");
            }
            (Ok(_), None) => panic!("{name}: a reply of another"),
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
