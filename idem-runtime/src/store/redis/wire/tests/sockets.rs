//! Real sockets and threads: many senders on three runtimes, and a connection that ends in any way at any moment.

use std::thread;

use fastrand::Rng;
use redis::io::tcp::socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use super::peer::{CommandKind, Peer, Sender};
use super::*;

#[test]
fn a_connection_that_ends_at_any_moment_gives_each_sender_its_reply_or_an_error() {
    let mut rng = Rng::with_seed(0);
    // In the last rounds the task alone flushes, as on a single processor.
    for early_flush in [[EARLY_FLUSH; 4].as_slice(), &[usize::MAX; 2]].concat() {
        for end in [
            SocketEnd::Never,
            SocketEnd::Reset,
            SocketEnd::HalfReply,
            SocketEnd::Silence,
            SocketEnd::Close,
            SocketEnd::Runtime,
        ] {
            run(end, early_flush, &mut rng);
        }
    }
}

/// How a connection ends, at a random moment.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SocketEnd {
    Never,
    /// The server resets it.
    Reset,
    /// The server closes it, in a reply.
    HalfReply,
    /// The server reads no more.
    Silence,
    /// Its owner closes it.
    Close,
    /// The runtime of its task is shut down.
    Runtime,
}

/// Waits for other threads.
fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < BOUND, "it does not come to that: {what}");
        thread::yield_now();
    }
}

fn multi_thread(workers: usize) -> runtime::Runtime {
    let mut builder = runtime::Builder::new_multi_thread();
    let builder = builder.worker_threads(workers).enable_all();
    builder.build().unwrap()
}

/// Serves until the end comes, after this many commands.
async fn serve(mut stream: TcpStream, end: SocketEnd, mut left: usize, peer: Arc<Mutex<Peer>>) {
    let mut buffer = [0; 4_096];
    loop {
        let read = match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => read,
            _ => return,
        };
        let replies = peer.lock().unwrap().receive(&buffer[..read]);
        let ends = matches!(
            end,
            SocketEnd::Reset | SocketEnd::HalfReply | SocketEnd::Silence
        );
        if ends && replies.len() >= left {
            let replies = replies[..left].concat();
            match end {
                SocketEnd::Reset => stream.set_zero_linger().unwrap(),
                SocketEnd::HalfReply => {
                    let _ = stream.write_all(&replies[..replies.len() - 3]).await;
                }
                _ => std::future::pending().await,
            }
            return;
        }
        left -= replies.len().min(left);
        if stream.write_all(&replies.concat()).await.is_err() {
            return;
        }
    }
}

/// Many commands, some at a time.
#[derive(Clone)]
struct Caller {
    wire: Arc<Wire>,
    peer: Arc<Mutex<Peer>>,
    numbers: Arc<AtomicUsize>,
    end: SocketEnd,
    rng: Rng,
}

impl Caller {
    async fn run(mut self) {
        for _ in 0..60 {
            let burst = if self.rng.usize(..12) == 0 { 80 } else { 1 };
            let mut begun = Vec::new();
            for _ in 0..burst {
                match self.begin() {
                    Ok(sender) => begun.push(sender),
                    Err(error) => {
                        assert!(breaks_connection(&error), "{error}");
                        assert_ne!(self.end, SocketEnd::Never);
                        break;
                    }
                }
            }
            for sender in begun {
                self.finish(sender).await;
            }
        }
    }

    fn begin(&mut self) -> RedisResult<Sender> {
        // The number decides the reply of the peer.
        let number = self.numbers.fetch_add(3, Ordering::Relaxed);
        let (kind, claims) = match self.rng.usize(..5) {
            kind @ 0..=2 => (CommandKind::One, kind == 1),
            3 => (CommandKind::Pair, false),
            _ => (CommandKind::InBatch, false),
        };
        Sender::begin(&self.wire, number, kind, claims)
    }

    /// Leaves, or waits for the replies.
    async fn finish(&mut self, mut sender: Sender) {
        let pending = &mut sender.replies;
        let replies = match self.rng.usize(..6) {
            0 => None,
            1 => poll_once(Pin::new(pending)).await,
            2 => {
                let limit = Duration::from_micros(300);
                tokio::time::timeout(limit, pending).await.ok()
            }
            _ => {
                let replies = tokio::time::timeout(BOUND, pending).await;
                Some(replies.expect("a sender waits for ever"))
            }
        };
        if let Some(replies) = replies {
            let may_fail = self.end != SocketEnd::Never;
            sender.check(replies, &self.peer.lock().unwrap(), may_fail);
        }
    }
}

/// One connection with its callers: 12 on the runtime of its task, and 4 on two others.
fn run(end: SocketEnd, early_flush: usize, rng: &mut Rng) {
    let peer = Arc::new(Mutex::new(Peer::default()));
    let (left, its_peer) = (rng.usize(1..2_000), Arc::clone(&peer));
    let servers = multi_thread(1);
    let address = servers.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let stream = listener.accept().await.unwrap().0;
            serve(stream, end, left, its_peer).await;
        });
        address
    });
    let response = match end {
        SocketEnd::Silence => Duration::from_millis(100),
        _ => LONG,
    };
    let runtime = multi_thread(3);
    let wire = runtime.block_on(async {
        let stream = TcpStream::connect(address).await.unwrap();
        SockRef::from(&stream).set_send_buffer_size(4_096).unwrap();
        let (read, write) = stream.into_split();
        Arc::new(Wire::new(read, write, within(response), None))
    });
    wire.0.lock().early_flush = early_flush;
    let caller = Caller {
        wire,
        peer,
        numbers: Arc::default(),
        end,
        rng: rng.fork(),
    };
    let mut more = || Caller {
        rng: rng.fork(),
        ..caller.clone()
    };
    let here: Vec<_> = (0..12).map(|_| runtime.spawn(more().run())).collect();
    let foreign = [(); 2].map(|()| {
        let [one, two] = [(); 2].map(|()| more());
        thread::spawn(move || {
            timed_runtime().block_on(async { tokio::join!(one.run(), two.run()) })
        })
    });
    let Caller { wire, peer, .. } = caller;
    if matches!(end, SocketEnd::Close | SocketEnd::Runtime) {
        // Any moment.
        let executed = rng.usize(1..500);
        wait_for("commands are executed", || {
            peer.lock().unwrap().executed() >= executed
        });
    }
    if end == SocketEnd::Runtime {
        runtime.shutdown_background();
    } else {
        if end == SocketEnd::Close {
            wire.close();
        }
        for caller in here {
            runtime.block_on(caller).unwrap();
        }
    }
    for thread in foreign {
        thread.join().unwrap();
    }
    // All places are free, and the task ends with the wire.
    let shared = Arc::clone(&wire.0);
    wait_for("places are free", || shared.lock().slots.used() == 0);
    wait_for("callers end", || Arc::strong_count(&wire) == 1);
    drop(wire);
    wait_for("the task ends", || Arc::strong_count(&shared) == 1);
    drop(servers);
    assert!(!peer.is_poisoned(), "the peer has found a fault");
}
