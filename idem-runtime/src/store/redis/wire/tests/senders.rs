//! Senders over a server that replies only when it may.

use std::thread;

use super::*;
use crate::store::redis::wire::echo::server;

/// More claims than a connection has in flight.
const CLAIMS: usize = 1_000;

/// A connection and its server.
struct Echo {
    wire: Arc<Wire>,
    received: Arc<Mutex<Vec<String>>>,
    may: Arc<AtomicBool>,
}

type Sent = Pin<Box<dyn Future<Output = RedisResult<Vec<Value>>> + Send>>;

impl Echo {
    /// `buffer`: bytes that the socket holds in each direction.
    fn start(buffer: usize) -> Self {
        let (here, there) = tokio::io::duplex(buffer);
        let received = Arc::new(Mutex::new(Vec::new()));
        let may = Arc::new(AtomicBool::new(true));
        tokio::spawn(server(there, Arc::clone(&received), Arc::clone(&may)));
        Self {
            wire: Arc::new(over(here, LONG)),
            received,
            may,
        }
    }

    /// A server that does not reply.
    fn silent() -> Self {
        let echo = Self::start(1 << 16);
        echo.allow(false);
        echo
    }

    fn allow(&self, may: bool) {
        self.may.store(may, Ordering::SeqCst);
    }

    /// Sends one word, or two at once, when it is polled.
    fn sending(&self, words: &[&str], claims: bool) -> Sent {
        let wire = Arc::clone(&self.wire);
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        Box::pin(async move {
            let second = words.get(1).map(|word| said(word));
            let second = second.as_ref().map(|second| second as &WriteCommand<'_>);
            let replies = wire.send(&said(&words[0]), second, claims).await?;
            Ok([replies.first].into_iter().chain(replies.second).collect())
        })
    }

    /// A command that is in flight or in the queue.
    async fn send(&self, word: &str, claims: bool) -> Sent {
        let mut sent = self.sending(&[word], claims);
        assert!(poll_once(sent.as_mut()).await.is_none(), "no reply yet");
        sent
    }

    async fn claims(&self, count: usize) -> Vec<Sent> {
        let mut claims = Vec::new();
        for _ in 0..count {
            claims.push(self.send("claim", true).await);
        }
        claims
    }

    /// The numbers of commands in flight, of queued commands, and of users of the connection.
    fn counts(&self) -> [usize; 3] {
        let state = self.wire.0.lock();
        let users = Arc::strong_count(&self.wire.0);
        [state.in_flight.len(), state.queue.len(), users]
    }
}

#[tokio::test]
async fn each_sender_receives_its_own_replies_and_pairs_stay_together() {
    // The smaller buffer cuts commands and replies at every byte.
    for buffer in [1 << 16, 7] {
        let echo = Echo::start(buffer);
        for round in 0..20 {
            let sent: Vec<_> = (0..200)
                .map(|n| {
                    let words = [format!("{round}/{n}/a"), format!("{round}/{n}/b")];
                    let words: Vec<_> = words.iter().take(1 + n % 2).map(|word| &**word).collect();
                    let replies: Vec<_> = words.iter().map(|word| bulk(word)).collect();
                    (replies, tokio::spawn(echo.sending(&words, false)))
                })
                .collect();
            for (replies, task) in sent {
                assert_eq!(task.await.unwrap().unwrap(), replies);
            }
        }
        let received = echo.received.lock().unwrap().clone();
        assert_eq!(received.len(), 20 * 300);
        for (at, command) in received.iter().enumerate() {
            if let Some(first) = command.strip_suffix("/b") {
                assert_eq!(received[at - 1], format!("{first}/a"));
            }
        }
        assert_eq!(echo.counts()[..2], [0, 0]);
    }
}

#[tokio::test]
async fn a_queued_command_whose_sender_leaves_is_not_sent() {
    let echo = Echo::silent();
    let one = echo.send("one", false).await;
    let gone = echo.send("gone", false).await;
    let two = echo.send("two", false).await;
    drop(gone);
    echo.allow(true);
    assert_eq!(one.await.unwrap(), [bulk("one")]);
    assert_eq!(two.await.unwrap(), [bulk("two")]);
    settle().await;
    let received = echo.received.lock().unwrap().clone();
    assert_eq!(received, ["ECHO one", "ECHO two"]);
}

#[tokio::test]
async fn commands_in_flight_are_bounded_and_completions_overtake_claims() {
    let echo = Echo::silent();
    let hurried = Admission::new(Duration::ZERO);
    let patient = Admission::new(Duration::from_hours(1));
    let crowded = |admission| echo.wire.crowded(admission);
    assert!(crowded(&hurried).is_none(), "no claim is queued");
    let claims = echo.claims(CLAIMS).await;
    settle().await;
    let [in_flight, queued, _] = echo.counts();
    assert!(
        in_flight == MAX_IN_FLIGHT && queued > 100,
        "{in_flight} {queued}"
    );
    let crowd = crowded(&hurried).expect("many are queued");
    assert_eq!(crowd.waiting, queued);
    assert!(!crowd.retry_after.is_zero());
    assert!(crowded(&patient).is_none());

    let ending = echo.send("ending", false).await;
    echo.allow(true);
    assert_eq!(ending.await.unwrap(), [bulk("ending")]);
    for claim in claims {
        assert_eq!(claim.await.unwrap(), [bulk("claim")]);
    }
    let received = echo.received.lock().unwrap().clone();
    let at = received.iter().position(|word| word == "ECHO ending");
    assert_eq!(at, Some(CLAIMS - queued));
    assert_eq!(echo.counts()[..2], [0, 0]);
    assert!(crowded(&hurried).is_none(), "no claim is queued");
}

#[tokio::test]
async fn a_closed_connection_fails_its_queue_and_still_receives_replies() {
    let echo = Echo::silent();
    let claims = echo.claims(CLAIMS).await;
    settle().await;
    let queued = echo.counts()[1];
    echo.wire.close();
    let mut in_flight = Vec::new();
    for mut claim in claims {
        match poll_once(claim.as_mut()).await {
            Some(queued) => assert!(queued.unwrap_err().is_connection_dropped()),
            None => in_flight.push(claim),
        }
    }
    assert_eq!(in_flight.len(), CLAIMS - queued);
    assert!(echo.sending(&["late"], true).await.is_err());
    echo.allow(true);
    for claim in in_flight {
        assert_eq!(claim.await.unwrap(), [bulk("claim")]);
    }
    settle().await;
    assert_eq!(echo.counts(), [0, 0, 1], "the task has ended");
}

/// The task may be woken by the end before it has read the queue, and is woken once.
#[tokio::test]
async fn the_task_ends_with_its_connection() {
    for has_run in [true, false] {
        for commands in [0, 1, 2, CLAIMS] {
            let echo = Echo::silent();
            let claims = echo.claims(commands).await;
            if has_run {
                settle().await;
            }
            drop(claims);
            let shared = Arc::clone(&echo.wire.0);
            drop(echo);
            settle().await;
            let users = Arc::strong_count(&shared);
            assert_eq!(users, 1, "{has_run}, {commands}");
        }
    }
}

#[test]
fn senders_fail_when_the_runtime_of_the_connection_ends() {
    let connected = timed_runtime();
    let echo = connected.block_on(async { Echo::silent() });
    let [one, two] = ["one", "two"].map(|word| echo.sending(&[word], false));
    let waiting = thread::spawn(move || timed_runtime().block_on(async { tokio::join!(one, two) }));
    while echo.counts()[1] == 0 {
        thread::yield_now();
    }
    drop(connected);
    let (one, two) = waiting.join().unwrap();
    let late = timed_runtime().block_on(echo.sending(&["late"], false));
    for lost in [one, two, late] {
        assert!(lost.unwrap_err().is_connection_dropped());
    }
}
