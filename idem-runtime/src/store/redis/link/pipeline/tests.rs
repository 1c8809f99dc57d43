//! One connection and a server that replies only when it is allowed to.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redis::{AsyncConnectionConfig, RedisConnectionInfo};

use super::*;
use crate::store::redis::link::echo::{bulk, said, server};

struct Server {
    connection: Arc<PipelinedConnection>,
    received: Arc<Mutex<Vec<String>>>,
    may: Arc<AtomicBool>,
}

impl Server {
    async fn start() -> Self {
        let (here, there) = tokio::io::duplex(1 << 16);
        let received = Arc::new(Mutex::new(Vec::new()));
        let may = Arc::new(AtomicBool::new(true));
        tokio::spawn(server(there, Arc::clone(&received), Arc::clone(&may)));
        let info = RedisConnectionInfo::default();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connected = MultiplexedConnection::new_with_config(&info, here, config);
        let (connection, driver) = connected.await.unwrap();
        tokio::spawn(driver);
        received.lock().unwrap().clear();
        Self {
            connection: Arc::new(PipelinedConnection::new(connection)),
            received,
            may,
        }
    }

    fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    /// Sends one word, or two at once, in a task of its own.
    fn send(&self, words: &[&str]) -> tokio::task::JoinHandle<RedisResult<Vec<Value>>> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let connection = Arc::clone(&self.connection);
        tokio::spawn(async move {
            let first = said(&words[0]);
            let second = words.get(1).map(|word| said(word));
            let second = second.as_ref().map(|second| second as &WriteCommand<'_>);
            let replies = connection.send(&first, second, false).await?;
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

#[tokio::test]
async fn each_sender_receives_its_own_replies_and_pairs_stay_together() {
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
    let received = server.received();
    assert_eq!(received.len(), 20 * 300);
    for (at, command) in received.iter().enumerate() {
        if let Some(first) = command.strip_suffix("/b") {
            assert_eq!(received[at - 1], format!("{first}/a"));
        }
    }
    let queue = &server.connection.queue;
    assert_eq!(queue.in_flight.load(Ordering::SeqCst), 0);
    assert!(queue.lock().len() == 0);
}

#[tokio::test]
async fn a_lone_command_after_a_burst_is_sent_at_once() {
    let server = Server::start().await;
    let last_batch: Vec<_> = (0..10).map(|_| server.send(&["burst"])).collect();
    for task in last_batch {
        task.await.unwrap().unwrap();
    }
    let queue = &server.connection.queue;
    assert!(queue.last_batch.load(Ordering::SeqCst) > 1);
    // The first command's batch finds that the other senders are gone.
    for _ in 0..2 {
        server.send(&["alone"]).await.unwrap().unwrap();
    }
    assert_eq!(queue.last_batch.load(Ordering::SeqCst), 1);
    server.may.store(false, Ordering::SeqCst);
    let alone = server.send(&["alone"]);
    Server::settle().await;
    assert_eq!(queue.in_flight.load(Ordering::SeqCst), 1);
    assert_eq!(server.received().len(), 13);
    server.may.store(true, Ordering::SeqCst);
    assert_eq!(alone.await.unwrap().unwrap(), [bulk("alone")]);
}

#[tokio::test]
async fn a_cancelled_command_is_not_sent() {
    let server = Server::start().await;
    let (one, two, gone) = (said("one"), said("two"), said("gone"));
    server.may.store(false, Ordering::SeqCst);
    let mut one = Box::pin(server.connection.send(&one, None, false));
    let mut two = Box::pin(server.connection.send(&two, None, false));
    let mut gone = Box::pin(server.connection.send(&gone, None, false));
    for future in [&mut one, &mut two, &mut gone] {
        assert!(poll_once(future.as_mut()).await.is_none());
    }
    drop(gone);
    server.may.store(true, Ordering::SeqCst);
    assert_eq!(one.await.unwrap().first, bulk("one"));
    assert_eq!(two.await.unwrap().first, bulk("two"));
    Server::settle().await;
    assert_eq!(server.received(), ["ECHO one", "ECHO two"]);
}

/// The flush task may be woken by the end before it has read the queue, and is woken once.
#[tokio::test]
async fn the_flush_task_ends_with_its_connection_though_commands_are_queued() {
    for waiting in [0, 1, MAX_BATCH + 1] {
        let server = Server::start().await;
        let queue = Arc::clone(&server.connection.queue);
        for _ in 0..waiting {
            drop(server.connection.queue(&said("gone"), None, false));
        }
        assert_eq!(queue.lock().len(), waiting);
        drop(server);
        Server::settle().await;
        assert_eq!(Arc::strong_count(&queue), 1, "{waiting} queued");
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
fn senders_fail_when_the_runtime_of_the_connection_ends() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    };
    let connected = runtime();
    let server = connected.block_on(Server::start());
    server.may.store(false, Ordering::SeqCst);
    let connection = Arc::clone(&server.connection);
    let waiting = std::thread::spawn(move || {
        runtime().block_on(async {
            let (one, two) = (said("one"), said("two"));
            tokio::join!(
                connection.send(&one, None, false),
                connection.send(&two, None, false)
            )
        })
    });
    while server.connection.queue.lock().len() == 0 {
        std::thread::yield_now();
    }
    drop(connected);
    let (one, two) = waiting.join().unwrap();
    assert!(one.is_err_and(|error| error.is_connection_dropped()));
    assert!(two.is_err_and(|error| error.is_connection_dropped()));
    // The last batch had more than one command, so that a new command is queued.
    server
        .connection
        .queue
        .last_batch
        .store(2, Ordering::SeqCst);
    runtime().block_on(async {
        let command = said("late");
        let reply = tokio::time::timeout(
            Duration::from_secs(20),
            server.connection.send(&command, None, false),
        );
        let reply = reply
            .await
            .expect("a sender does not wait for a connection that has ended");
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

/// Claims while no pipeline in flight can end, so that most of them are queued.
fn claims(
    connection: &PipelinedConnection,
    count: usize,
) -> Vec<std::pin::Pin<Box<impl Future<Output = RedisResult<Replies>> + '_>>> {
    let send = move || async move { connection.send(&said("claim"), None, true).await };
    (0..count).map(|_| Box::pin(send())).collect()
}

#[tokio::test]
async fn the_number_of_pipelines_in_flight_is_bounded() {
    let server = Server::start().await;
    server.may.store(false, Ordering::SeqCst);
    let connection = Arc::clone(&server.connection);
    let mut sent = claims(&connection, MAX_BATCH * (MAX_IN_FLIGHT + 2));
    polled(&mut sent).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        connection.queue.in_flight.load(Ordering::SeqCst),
        MAX_IN_FLIGHT
    );
    let waiting = connection.queue.lock().len();
    assert!(waiting > MAX_BATCH, "{waiting}");
    server.may.store(true, Ordering::SeqCst);
    for reply in sent {
        assert!(reply.await.is_ok());
    }
    assert_eq!(connection.queue.in_flight.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn completions_overtake_claims() {
    let server = Server::start().await;
    server.may.store(false, Ordering::SeqCst);
    let connection = Arc::clone(&server.connection);
    let mut sent = claims(&connection, MAX_BATCH * (MAX_IN_FLIGHT + 4));
    polled(&mut sent).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let ending = said("ending");
    let mut ending = [Box::pin(connection.send(&ending, None, false))];
    polled(&mut ending).await;
    let next = connection.queue.lock().batch();
    assert!(
        format!("{:?}", next[0].first).contains("ending"),
        "the completion came last"
    );
    drop(next);
    server.may.store(true, Ordering::SeqCst);
}

#[tokio::test]
async fn commands_in_the_queue_of_a_closed_connection_are_not_sent() {
    let server = Server::start().await;
    server.may.store(false, Ordering::SeqCst);
    let connection = Arc::clone(&server.connection);
    let mut sent = claims(&connection, MAX_BATCH * (MAX_IN_FLIGHT + 2));
    polled(&mut sent).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let waiting = connection.queue.lock().len();
    connection.close();
    let mut refused = 0;
    for reply in &mut sent {
        let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(reply.as_mut().poll(cx)));
        let poll = tokio::task::unconstrained(poll);
        refused += usize::from(matches!(poll.await, std::task::Poll::Ready(Err(_))));
    }
    assert_eq!(refused, waiting);
    let more = said("late");
    assert!(connection.send(&more, None, true).await.is_err());
}

#[tokio::test]
async fn a_claim_that_would_wait_too_long_is_refused() {
    let server = Server::start().await;
    let connection = Arc::clone(&server.connection);
    let hurried = Admission::new(Duration::ZERO);
    assert!(connection.crowded(&hurried).is_none(), "no claim is queued");
    server.may.store(false, Ordering::SeqCst);
    let mut sent = claims(&connection, MAX_BATCH * (MAX_IN_FLIGHT + 2));
    polled(&mut sent).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let crowded = connection.crowded(&hurried).expect("many are queued");
    assert!(crowded.waiting > 0 && !crowded.retry_after.is_zero());
    let patient = Admission::new(Duration::from_hours(1));
    assert!(connection.crowded(&patient).is_none());
    server.may.store(true, Ordering::SeqCst);
}
