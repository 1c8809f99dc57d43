//! Real sockets and threads: many senders on three runtimes, and a connection that ends in any way at any moment.

use std::thread;

use fastrand::Rng;
use redis::io::tcp::socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// The first error of a socket is the reason of its end; the next ones are "broken pipe".
#[test]
fn a_command_has_the_error_that_its_sender_found() {
    let mut builder = runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (here, there) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (read, write) = here.unwrap().into_split();
        let wire = Wire::new(read, write, within(LONG));
        settle().await;
        // Without time to linger, the end is a reset.
        there.unwrap().0.set_zero_linger().unwrap();
        let error = first_of(begin(&wire, "one")).await.unwrap_err();
        assert!(error.to_string().contains("reset"), "{error}");
    });
}

#[test]
fn a_connection_that_ends_at_any_moment_gives_each_sender_its_reply_or_an_error() {
    let mut rng = Rng::with_seed(0);
    // In the last rounds the task alone flushes, as on a single processor.
    for early_flush in [[EARLY_FLUSH; 4].as_slice(), &[usize::MAX; 2]].concat() {
        for end in [
            End::Never,
            End::Reset,
            End::HalfReply,
            End::Silence,
            End::Close,
            End::Runtime,
        ] {
            Round::start(end, early_flush, &mut rng).run();
        }
    }
}

/// How a connection ends, at a random moment.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
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

/// A server whose scripts do not find each third key.
struct Server {
    stream: TcpStream,
    end: End,
    /// Number of commands after which the end comes.
    left: usize,
    /// The keys of the commands.
    executed: Arc<Mutex<Vec<String>>>,
}

fn is_found(key: &str) -> bool {
    !key.len().is_multiple_of(3)
}

impl Server {
    async fn run(mut self) {
        let (mut received, mut buffer) = (Vec::new(), [0; 4_096]);
        loop {
            let read = match self.stream.read(&mut buffer).await {
                Ok(read) if read > 0 => read,
                _ => return,
            };
            received.extend_from_slice(&buffer[..read]);
            let mut replies = Vec::new();
            for words in take_commands(&mut received) {
                self.execute(&words, &mut replies);
                self.left = self.left.saturating_sub(1);
                if self.left == 0 && self.ends() {
                    return self.end(&replies).await;
                }
            }
            if self.stream.write_all(&replies).await.is_err() {
                return;
            }
        }
    }

    fn ends(&self) -> bool {
        matches!(self.end, End::Reset | End::HalfReply | End::Silence)
    }

    fn execute(&self, words: &[String], replies: &mut Vec<u8>) {
        let mut executed = self.executed.lock().unwrap();
        if words[0] == "ECHO" {
            let reply = format!("${}\r\n{}\r\n", words[1].len(), words[1]);
            replies.extend(reply.into_bytes());
            executed.push(words[1].clone());
            return;
        }
        let keys = &words[3..][..words[2].parse().unwrap()];
        executed.extend_from_slice(keys);
        replies.extend(batch_reply(keys, is_found).bytes());
    }

    async fn end(mut self, replies: &[u8]) {
        match self.end {
            End::Reset => self.stream.set_zero_linger().unwrap(),
            End::HalfReply => {
                let _ = self.stream.write_all(&replies[..replies.len() - 3]).await;
            }
            _ => std::future::pending().await,
        }
    }
}

/// Commands of one sender, some at a time.
struct Sender {
    wire: Arc<Wire>,
    script: Arc<BatchScript>,
    name: String,
    end: End,
    rng: Rng,
}

impl Sender {
    async fn run(mut self) {
        for n in 0..60 {
            let burst = if self.rng.usize(..12) == 0 { 80 } else { 1 };
            let mut begun = Vec::new();
            for m in 0..burst {
                match self.begin(&format!("{}.{n}.{m}", self.name)) {
                    Ok(command) => begun.push(command),
                    Err(error) => {
                        assert!(breaks_connection(&error), "{error}");
                        assert_ne!(self.end, End::Never);
                        break;
                    }
                }
            }
            for (pending, expected) in begun {
                self.finish(pending, &expected).await;
            }
        }
    }

    /// A command with its replies.
    fn begin(&mut self, name: &str) -> RedisResult<(PendingReplies, Vec<Value>)> {
        let long = if self.rng.usize(..8) == 0 { 3_000 } else { 20 };
        let word = format!("{name}/{}", "x".repeat(self.rng.usize(..long)));
        Ok(match self.rng.usize(..5) {
            kind @ 0..=2 => {
                let pending = self.wire.begin(&said(&word), None, kind == 1)?;
                (pending, vec![bulk(&word)])
            }
            3 => {
                let second = format!("{word}/2");
                let pending = self.wire.begin(&said(&word), Some(&said(&second)), false)?;
                (pending, vec![bulk(&word), bulk(&second)])
            }
            _ => {
                let pending = self.wire.begin_in_batch(&BatchCommand {
                    script: &self.script,
                    key: word.as_bytes(),
                    arguments: [b"a", b"b"],
                })?;
                (pending, vec![Value::Int(is_found(&word).into())])
            }
        })
    }

    /// Leaves, or waits for the replies.
    async fn finish(&mut self, mut pending: PendingReplies, expected: &[Value]) {
        let replies = match self.rng.usize(..6) {
            0 => None,
            1 => poll_once(Pin::new(&mut pending)).await,
            2 => {
                let limit = Duration::from_micros(300);
                tokio::time::timeout(limit, pending).await.ok()
            }
            _ => {
                let replies = tokio::time::timeout(BOUND, pending).await;
                Some(replies.expect("a sender waits for ever"))
            }
        };
        match replies {
            None => {}
            Some(Ok(replies)) => {
                let replies: Vec<_> = [replies.first].into_iter().chain(replies.second).collect();
                assert_eq!(replies, expected);
            }
            Some(Err(error)) => {
                assert_ne!(self.end, End::Never, "{error}");
                assert!(error.is_timeout() || breaks_connection(&error), "{error}");
            }
        }
    }
}

/// One connection with its senders.
struct Round {
    end: End,
    rng: Rng,
    wire: Arc<Wire>,
    runtime: runtime::Runtime,
    servers: runtime::Runtime,
    executed: Arc<Mutex<Vec<String>>>,
    script: Arc<BatchScript>,
}

impl Round {
    fn start(end: End, early_flush: usize, rng: &mut Rng) -> Self {
        let mut rng = rng.fork();
        let executed = Arc::new(Mutex::new(Vec::new()));
        let (left, record) = (rng.usize(1..2_000), Arc::clone(&executed));
        let servers = multi_thread(1);
        let address = servers.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                let server = Server {
                    stream: listener.accept().await.unwrap().0,
                    end,
                    left,
                    executed: record,
                };
                server.run().await;
            });
            address
        });
        let response = match end {
            End::Silence => Duration::from_millis(100),
            _ => LONG,
        };
        let runtime = multi_thread(3);
        let wire = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            SockRef::from(&stream).set_send_buffer_size(4_096).unwrap();
            let (read, write) = stream.into_split();
            Arc::new(Wire::new(read, write, within(response)))
        });
        wire.0.lock().early_flush = early_flush;
        Self {
            end,
            rng,
            wire,
            runtime,
            servers,
            executed,
            script: batch_script(),
        }
    }

    fn sender(&mut self, name: String) -> Sender {
        Sender {
            wire: Arc::clone(&self.wire),
            script: Arc::clone(&self.script),
            name,
            end: self.end,
            rng: self.rng.fork(),
        }
    }

    fn run(mut self) {
        let here: Vec<_> = (0..12)
            .map(|n| {
                let sender = self.sender(format!("here-{n}"));
                self.runtime.spawn(sender.run())
            })
            .collect();
        let foreign = (0..2).map(|n| {
            let [one, two] = ["one", "two"].map(|name| self.sender(format!("{n}-{name}")));
            thread::spawn(move || {
                timed_runtime().block_on(async { tokio::join!(one.run(), two.run()) })
            })
        });
        let foreign: Vec<_> = foreign.collect();
        if matches!(self.end, End::Close | End::Runtime) {
            // Any moment.
            let executed = self.rng.usize(1..500);
            wait_for("commands are executed", || {
                self.executed.lock().unwrap().len() >= executed
            });
        }
        if self.end == End::Runtime {
            self.runtime.shutdown_background();
            self.runtime = multi_thread(1);
        } else {
            if self.end == End::Close {
                self.wire.close();
            }
            self.runtime.block_on(async {
                for sender in here {
                    sender.await.unwrap();
                }
            });
        }
        for thread in foreign {
            thread.join().unwrap();
        }
        self.assert_clean();
    }

    /// All places are free, the task ends with the wire, and no command was executed twice.
    fn assert_clean(self) {
        let shared = Arc::clone(&self.wire.0);
        wait_for("places are free", || shared.lock().slots.used() == 0);
        wait_for("senders end", || Arc::strong_count(&self.wire) == 1);
        drop(self.wire);
        wait_for("the task ends", || Arc::strong_count(&shared) == 1);
        drop(self.servers);
        let executed = self.executed.lock().unwrap();
        assert_executed_once(&executed, |word| word.strip_suffix("/2").map(str::to_owned));
    }
}
