//! One connection and a server that replies only when it is allowed to.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::*;

/// Replies to each command with its last word, once it may. Records the commands.
async fn server(stream: DuplexStream, heard: Arc<Mutex<Vec<String>>>, may: Arc<AtomicBool>) {
    let (read, mut write) = tokio::io::split(stream);
    let mut read = BufReader::new(read);
    let mut line = String::new();
    while read.read_line(&mut line).await.unwrap() > 0 {
        let words: usize = line.trim().trim_start_matches('*').parse().unwrap();
        let mut command = Vec::new();
        for _ in 0..words {
            line.clear();
            read.read_line(&mut line).await.unwrap();
            let mut word = vec![0; line.trim()[1..].parse::<usize>().unwrap() + 2];
            read.read_exact(&mut word).await.unwrap();
            command.push(String::from_utf8(word).unwrap().trim_end().to_owned());
        }
        let last = command.last().unwrap().clone();
        heard.lock().unwrap().push(command.join(" "));
        while !may.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        let reply = format!("${}\r\n{last}\r\n", last.len());
        write.write_all(reply.as_bytes()).await.unwrap();
        line.clear();
    }
}

struct Server {
    lane: Arc<Lane>,
    heard: Arc<Mutex<Vec<String>>>,
    may: Arc<AtomicBool>,
}

impl Server {
    async fn start() -> Self {
        let (here, there) = tokio::io::duplex(1 << 16);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let may = Arc::new(AtomicBool::new(true));
        tokio::spawn(server(there, Arc::clone(&heard), Arc::clone(&may)));
        let info = RedisConnectionInfo::default();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connected = MultiplexedConnection::new_with_config(&info, here, config);
        let (connection, driver) = connected.await.unwrap();
        tokio::spawn(driver);
        heard.lock().unwrap().clear();
        Self {
            lane: Arc::new(Lane::new(connection)),
            heard,
            may,
        }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// Sends one word, or two at once, in a task of its own.
    fn send(&self, words: &[&str]) -> tokio::task::JoinHandle<RedisResult<Vec<Value>>> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let lane = Arc::clone(&self.lane);
        tokio::spawn(async move {
            let first = said(&words[0]);
            let second = words.get(1).map(|word| said(word));
            let second = second.as_ref().map(|second| second as &Making<'_>);
            let replies = lane.send(&first, second, false).await?;
            Ok([replies.first].into_iter().chain(replies.second).collect())
        })
    }

    /// Lets every task run as far as it can.
    async fn settle() {
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
    }
}

fn said(word: &str) -> impl Fn() -> Cmd + Send + Sync {
    move || {
        let mut command = redis::cmd("ECHO");
        command.arg(word);
        command
    }
}

fn bulk(word: &str) -> Value {
    Value::BulkString(word.as_bytes().to_vec())
}

#[tokio::test]
async fn each_gets_the_replies_to_its_own_and_pairs_stay_together() {
    let server = Server::start().await;
    for round in 0..20 {
        let sent: Vec<_> = (0..200)
            .map(|n| {
                let words = [format!("{round}/{n}/a"), format!("{round}/{n}/b")];
                let words: Vec<_> = words.iter().take(1 + n % 2).map(String::as_str).collect();
                let task = server.send(&words);
                (words.into_iter().map(bulk).collect::<Vec<_>>(), task)
            })
            .collect();
        for (words, task) in sent {
            assert_eq!(task.await.unwrap().unwrap(), words);
        }
    }
    let heard = server.heard();
    assert_eq!(heard.len(), 20 * 300);
    for (at, command) in heard.iter().enumerate() {
        if let Some(first) = command.strip_suffix("/b") {
            assert_eq!(heard[at - 1], format!("{first}/a"));
        }
    }
    let queue = &server.lane.queue;
    assert_eq!(queue.under_way.load(Ordering::SeqCst), 0);
    assert!(queue.lock().len() == 0);
}

#[tokio::test]
async fn who_is_alone_again_does_not_wait_for_a_turn() {
    let server = Server::start().await;
    let crowd: Vec<_> = (0..10).map(|_| server.send(&["crowd"])).collect();
    for task in crowd {
        task.await.unwrap().unwrap();
    }
    let queue = &server.lane.queue;
    assert!(queue.crowd.load(Ordering::SeqCst) > 1);
    // The first command's batch finds that the other senders are gone.
    for _ in 0..2 {
        server.send(&["alone"]).await.unwrap().unwrap();
    }
    assert_eq!(queue.crowd.load(Ordering::SeqCst), 1);
    server.may.store(false, Ordering::SeqCst);
    let alone = server.send(&["alone"]);
    Server::settle().await;
    assert_eq!(queue.under_way.load(Ordering::SeqCst), 1);
    assert_eq!(server.heard().len(), 13);
    server.may.store(true, Ordering::SeqCst);
    assert_eq!(alone.await.unwrap().unwrap(), [bulk("alone")]);
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_sent() {
    let server = Server::start().await;
    let (one, two, gone) = (said("one"), said("two"), said("gone"));
    server.may.store(false, Ordering::SeqCst);
    let mut one = Box::pin(server.lane.send(&one, None, false));
    let mut two = Box::pin(server.lane.send(&two, None, false));
    let mut gone = Box::pin(server.lane.send(&gone, None, false));
    for future in [&mut one, &mut two, &mut gone] {
        assert!(poll_once(future.as_mut()).await.is_none());
    }
    drop(gone);
    server.may.store(true, Ordering::SeqCst);
    assert_eq!(one.await.unwrap().first, bulk("one"));
    assert_eq!(two.await.unwrap().first, bulk("two"));
    Server::settle().await;
    assert_eq!(server.heard(), ["ECHO one", "ECHO two"]);
}

/// The driver may be notified of the end before it has read the queue, and is notified once.
#[tokio::test]
async fn the_driver_ends_with_its_lane_though_something_waits() {
    for waiting in [0, 1, TOGETHER + 1] {
        let server = Server::start().await;
        let queue = Arc::clone(&server.lane.queue);
        for _ in 0..waiting {
            drop(server.lane.queue(&said("gone"), None, false));
        }
        assert_eq!(queue.lock().len(), waiting);
        drop(server);
        Server::settle().await;
        assert_eq!(Arc::strong_count(&queue), 1, "{waiting} waited");
    }
}

/// One poll.
async fn poll_once<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[test]
fn whoever_waits_hears_when_the_runtime_of_the_connection_ends() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    };
    let connected = runtime();
    let server = connected.block_on(Server::start());
    server.may.store(false, Ordering::SeqCst);
    let lane = Arc::clone(&server.lane);
    let waiting = std::thread::spawn(move || {
        runtime().block_on(async {
            let (one, two) = (said("one"), said("two"));
            tokio::join!(lane.send(&one, None, false), lane.send(&two, None, false))
        })
    });
    while server.lane.queue.lock().len() == 0 {
        std::thread::yield_now();
    }
    drop(connected);
    let (one, two) = waiting.join().unwrap();
    assert!(one.is_err_and(|error| error.is_connection_dropped()));
    assert!(two.is_err_and(|error| error.is_connection_dropped()));
    // The last batch had more than one command, so that a new command is queued.
    server.lane.queue.crowd.store(2, Ordering::SeqCst);
    runtime().block_on(async {
        let command = said("late");
        let reply = tokio::time::timeout(
            Duration::from_secs(20),
            server.lane.send(&command, None, false),
        );
        let reply = reply
            .await
            .expect("nobody waits for a connection that has ended");
        assert!(reply.is_err_and(|error| error.is_connection_dropped()));
    });
}

/// Polls each future once: their commands are queued, or sent.
async fn polled<F: Future>(futures: &mut [std::pin::Pin<Box<F>>]) {
    for future in futures {
        std::future::poll_fn(|cx| {
            assert!(future.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    }
}

/// So many claims, with nothing in flight that could end: most of them wait.
fn claims(
    lane: &Lane,
    count: usize,
) -> Vec<std::pin::Pin<Box<impl Future<Output = RedisResult<Replies>> + '_>>> {
    let claim = || redis::cmd("ECHO").arg("claim").clone();
    let send = move || async move { lane.send(&claim, None, true).await };
    (0..count).map(|_| Box::pin(send())).collect()
}

#[tokio::test]
async fn so_many_are_under_way_and_the_others_wait() {
    let server = Server::start().await;
    server.may.store(false, Ordering::SeqCst);
    let lane = Arc::clone(&server.lane);
    let mut sent = claims(&lane, TOGETHER * (UNDER_WAY + 2));
    polled(&mut sent).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(lane.queue.under_way.load(Ordering::SeqCst), UNDER_WAY);
    let waiting = lane.queue.lock().len();
    assert!(waiting > TOGETHER, "{waiting}");
    server.may.store(true, Ordering::SeqCst);
    for reply in sent {
        assert!(reply.await.is_ok());
    }
    assert_eq!(lane.queue.under_way.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_ends_a_claim_goes_ahead_of_claims() {
    let server = Server::start().await;
    server.may.store(false, Ordering::SeqCst);
    let lane = Arc::clone(&server.lane);
    let mut sent = claims(&lane, TOGETHER * (UNDER_WAY + 4));
    polled(&mut sent).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let ending = || redis::cmd("ECHO").arg("ending").clone();
    let mut ending = [Box::pin(lane.send(&ending, None, false))];
    polled(&mut ending).await;
    let next = lane.queue.lock().batch();
    assert!(
        format!("{:?}", next[0].first).contains("ending"),
        "it came last"
    );
    drop(next);
    server.may.store(true, Ordering::SeqCst);
}

#[tokio::test]
async fn what_waits_for_a_connection_that_is_given_up_was_not_sent() {
    let server = Server::start().await;
    server.may.store(false, Ordering::SeqCst);
    let lane = Arc::clone(&server.lane);
    let mut sent = claims(&lane, TOGETHER * (UNDER_WAY + 2));
    polled(&mut sent).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let waiting = lane.queue.lock().len();
    lane.abandon();
    let mut refused = 0;
    for reply in &mut sent {
        let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(reply.as_mut().poll(cx)));
        // However many there are.
        let poll = tokio::task::unconstrained(poll);
        refused += usize::from(matches!(poll.await, std::task::Poll::Ready(Err(_))));
    }
    assert_eq!(refused, waiting);
    let more = || redis::cmd("ECHO").arg("late").clone();
    assert!(lane.send(&more, None, true).await.is_err());
}

#[tokio::test]
async fn a_claim_that_would_wait_too_long_is_refused() {
    let server = Server::start().await;
    let lane = Arc::clone(&server.lane);
    let hurried = Admission::new(Duration::ZERO);
    assert!(lane.crowded(&hurried).is_none(), "nothing waits");
    server.may.store(false, Ordering::SeqCst);
    let mut sent = claims(&lane, TOGETHER * (UNDER_WAY + 2));
    polled(&mut sent).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let crowded = lane.crowded(&hurried).expect("many wait");
    assert!(crowded.waiting > 0 && !crowded.retry_after.is_zero());
    let patient = Admission::new(Duration::from_hours(1));
    assert!(lane.crowded(&patient).is_none());
    server.may.store(true, Ordering::SeqCst);
}
