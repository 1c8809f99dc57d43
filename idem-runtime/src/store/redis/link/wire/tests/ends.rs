//! A connection ends: for each sender with an error that breaks it and tells the reason.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Wake;

use super::*;

#[tokio::test]
async fn a_lost_connection_fails_all_commands() {
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let wire = over(here, LONG);
    let sent = ["one", "two", "three"].map(|word| begin(&wire, word));
    settle().await;
    // One reply, and half of another.
    server.write_all(b"$3\r\none\r\n$3\r\nt").await.unwrap();
    drop(server);
    let [one, two, three] = sent.map(first_of);
    assert_eq!(one.await.unwrap(), bulk("one"));
    for lost in [two, three] {
        assert!(lost.await.unwrap_err().is_connection_dropped());
    }
    let error = wire.begin(&said("late"), None, false).err().unwrap();
    assert!(error.is_connection_dropped());
}

#[tokio::test]
async fn replies_without_a_command_end_the_connection() {
    let busy = "-ERR max number of clients reached\r\n";
    for (bytes, detail) in [
        (busy, Some("max number of clients reached")),
        ("$1\r\nx\r\n", None),
    ] {
        let (here, mut server) = tokio::io::duplex(1 << 16);
        let wire = over(here, LONG);
        server.write_all(bytes.as_bytes()).await.unwrap();
        settle().await;
        // The reply is not that of the next command.
        let error = wire.begin(&said("one"), None, false).err().unwrap();
        assert_eq!(error.detail(), detail);
        assert!(detail.is_some() || error.is_connection_dropped());
        assert_eq!(arrived(&mut server).await, "");
    }
}

#[tokio::test]
async fn the_last_words_of_a_server_are_the_reply_to_a_command_in_flight() {
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let wire = over(here, LONG);
    let (one, two) = (begin(&wire, "one"), begin(&wire, "two"));
    server
        .write_all(b"-ERR max number of clients reached\r\n")
        .await
        .unwrap();
    drop(server);
    let Ok(Value::ServerError(error)) = first_of(one).await else {
        panic!("the words of the server");
    };
    assert_eq!(error.details(), Some("max number of clients reached"));
    assert!(first_of(two).await.unwrap_err().is_connection_dropped());
}

#[tokio::test]
async fn pushes_are_skipped_and_other_bytes_end_the_connection() {
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let wire = over(here, LONG);
    let one = begin(&wire, "one");
    server
        .write_all(b">2\r\n+invalidate\r\n_\r\n$3\r\none\r\n")
        .await
        .unwrap();
    assert_eq!(first_of(one).await.unwrap(), bulk("one"));
    let two = begin(&wire, "two");
    server
        .write_all(b"HTTP/1.1 400 Bad Request\r\n")
        .await
        .unwrap();
    assert!(first_of(two).await.unwrap_err().is_connection_dropped());
}

#[test]
fn senders_fail_when_the_runtime_of_the_wire_ends() {
    let runtime = timed_runtime;
    let connected = runtime();
    let (wire, server) = connected.block_on(async {
        let (here, there) = tokio::io::duplex(1 << 16);
        (Arc::new(over(here, LONG)), there)
    });
    let sender = Arc::clone(&wire);
    let waiting = std::thread::spawn(move || {
        runtime().block_on(async {
            tokio::join!(
                first_of(begin(&sender, "one")),
                first_of(begin(&sender, "two"))
            )
        })
    });
    while wire.0.lock().queue.len() == 0 {
        std::thread::yield_now();
    }
    drop(connected);
    let (one, two) = waiting.join().unwrap();
    for lost in [one, two] {
        assert!(lost.unwrap_err().is_connection_dropped());
    }
    assert!(wire.begin(&said("late"), None, false).is_err());
    drop(server);
}

/// The owner of the connection replaces it on such an error only, so no other may come from a connection that has ended,
/// and none after its owner has closed it.
async fn assert_ended(wire: &Wire, reason: &str) {
    settle().await;
    for _ in 0..2 {
        let error = wire.begin(&said("late"), None, false).err().unwrap();
        assert!(breaks_connection(&error), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        wire.close();
    }
}

#[tokio::test]
async fn a_reply_that_the_client_library_refuses_ends_the_connection() {
    let refused: [&[u8]; 4] = [b"#x\r\n", b",abc\r\n", b"-ERR \xff\r\n", b"=3\r\nabc\r\n"];
    for bytes in refused {
        let (here, mut server) = tokio::io::duplex(1 << 16);
        let wire = over(here, LONG);
        let one = begin(&wire, "one");
        server.write_all(bytes).await.unwrap();
        let error = first_of(one).await.unwrap_err();
        assert!(breaks_connection(&error), "{error}");
        assert_ended(&wire, "Parse error").await;
    }
}

#[tokio::test]
async fn an_error_without_a_command_ends_the_connection() {
    for words in [
        "LOADING Redis is loading",
        "NOAUTH Authentication required.",
        "ERR Protocol error",
        "ERR max number of clients reached",
    ] {
        let (here, mut server) = tokio::io::duplex(1 << 16);
        let wire = over(here, LONG);
        let line = format!("-{words}\r\n");
        server.write_all(line.as_bytes()).await.unwrap();
        let (_, words) = words.split_once(' ').unwrap();
        assert_ended(&wire, words).await;
    }
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
    assert_ended(&wire, "timed out").await;
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
    assert_ended(&wire, "panicked").await;
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
        assert_ended(&wire, "panicked").await;
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
