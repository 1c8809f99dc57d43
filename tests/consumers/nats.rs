//! NATS `JetStream`, on a real server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::consumer::{Info, PullConsumer};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, stream};
use async_nats::{HeaderMap, HeaderValue};
use idem_harness::NatsServer;
use idem_runtime::consumer::{
    BrokerError, Consumer, DeadLetterReason, Delivery, JetStream, JetStreamDelivery, Raw, Source,
    Summary, Verdict,
};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Class, Classify, Context, Engine, Policy};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const STREAM: &str = "bills";
const DURABLE: &str = "collectors";
const DEAD: &str = "dead.bills";
const PATIENCE: Duration = Duration::from_mins(1);
const ACK_WAIT: Duration = Duration::from_secs(1);
/// The shortest time against duplicates that a stream can have. Later ones are stored.
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);

#[derive(Debug, Deserialize, Serialize)]
struct Down;

impl Classify for Down {
    fn class(&self) -> Class {
        Class::System
    }
}

/// The number of bodies of each payload.
type Bodies = Arc<Mutex<BTreeMap<String, u32>>>;

async fn client(server: &NatsServer) -> jetstream::Context {
    jetstream::new(async_nats::connect(server.url()).await.unwrap())
}

async fn create_stream(server: &NatsServer, name: &str, subjects: &[&str], window: Duration) {
    let config = stream::Config {
        name: name.to_owned(),
        subjects: subjects.iter().copied().map(str::to_owned).collect(),
        duplicate_window: window,
        ..stream::Config::default()
    };
    client(server).await.create_stream(config).await.unwrap();
}

/// A server with a stream of messages and one of dead letters.
async fn server() -> NatsServer {
    let server = NatsServer::start();
    create_stream(&server, STREAM, &["bills.>"], SHORTEST_WINDOW).await;
    create_stream(&server, "dead", &["dead.>"], Duration::from_mins(2)).await;
    server
}

async fn publish(server: &NatsServer, message: PublishMessage) {
    let client = client(server).await;
    let sent = client.send_publish("bills.eu", message).await.unwrap();
    sent.await.unwrap();
}

fn message(id: &str) -> PublishMessage {
    let payload = id.to_owned().into();
    PublishMessage::build().payload(payload).message_id(id)
}

/// Sends a message for each of these numbers.
async fn send(server: &NatsServer, ids: impl IntoIterator<Item = u32>) {
    let client = client(server).await;
    for id in ids {
        let id = format!("m-{id}");
        loop {
            let sent = client.send_publish("bills.eu", message(&id)).await.unwrap();
            if !sent.await.unwrap().duplicate {
                break;
            }
        }
    }
}

async fn source(server: &NatsServer) -> JetStream {
    let source = JetStream::connect(&server.url(), STREAM, DURABLE).await;
    source.unwrap().ack_wait(ACK_WAIT)
}

async fn next(source: &mut JetStream) -> JetStreamDelivery {
    let next = timeout(PATIENCE, source.next()).await;
    next.expect("a delivery in time").unwrap().unwrap()
}

async fn error(source: &mut JetStream) -> BrokerError {
    let next = timeout(PATIENCE, source.next()).await;
    next.expect("an error in time").unwrap_err()
}

/// What the server knows of the durable; nothing while it is down.
async fn info(client: &jetstream::Context) -> Option<Info> {
    let consumer = client.get_consumer_from_stream(DURABLE, STREAM).await;
    let consumer: PullConsumer = consumer.ok()?;
    Some(consumer.cached_info().clone())
}

async fn until_settled(client: &jetstream::Context) {
    let settled = async {
        while info(client)
            .await
            .is_none_or(|info| info.num_pending + info.num_ack_pending as u64 > 0)
        {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, settled)
        .await
        .expect("every message is settled");
}

/// The headers and the payloads of the dead letters.
async fn dead_letters(server: &NatsServer) -> Vec<(HeaderMap, String)> {
    let mut dead = client(server).await.get_stream("dead").await.unwrap();
    let state = dead.info().await.unwrap().state.clone();
    let mut letters = Vec::new();
    for sequence in 1..=state.last_sequence {
        let letter = dead.get_raw_message(sequence).await.unwrap();
        assert_eq!(letter.subject.as_str(), DEAD);
        letters.push((
            letter.headers,
            String::from_utf8(letter.payload.to_vec()).unwrap(),
        ));
    }
    letters
}

/// Consumers of one store that run until they are stopped.
struct Desk {
    bodies: Bodies,
    running: JoinSet<Summary>,
    stop: watch::Sender<bool>,
}

impl Desk {
    /// Handlers take at least `body`.
    async fn open(
        server: &NatsServer,
        consumers: usize,
        body: Duration,
        fails: fn(&str) -> bool,
    ) -> Self {
        let (store, bodies) = (MemoryStore::new(), Bodies::default());
        let (stop, stopped) = watch::channel(false);
        let mut running = JoinSet::new();
        for _ in 0..consumers {
            let bodies = Arc::clone(&bodies);
            let handler = move |message: Raw, _: Context| {
                let text = String::from_utf8(message.0).unwrap();
                *bodies.lock().unwrap().entry(text.clone()).or_default() += 1;
                async move {
                    sleep(body).await;
                    if fails(&text) { Err(Down) } else { Ok(()) }
                }
            };
            let consumer = Consumer::new(Engine::new(store.clone()), "bills.collect")
                .policy(Policy::new().lease(ACK_WAIT))
                .dead_letter_after(3)
                .retry_after(Duration::from_millis(10));
            let (source, mut stopped) = (source(server).await, stopped.clone());
            let stopped = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            running
                .spawn(async move { consumer.run_until(source, handler, stopped).await.unwrap() });
        }
        Self {
            bodies,
            running,
            stop,
        }
    }

    fn bodies(&self) -> BTreeMap<String, u32> {
        self.bodies.lock().unwrap().clone()
    }

    async fn close(self) -> Vec<Summary> {
        self.stop.send_replace(true);
        self.running.join_all().await
    }
}

#[tokio::test]
async fn three_consumers_run_one_body_for_each_id() {
    let server = server().await;
    send(&server, (0..2_000).map(|number| number % 500)).await;
    let desk = Desk::open(&server, 3, Duration::ZERO, |_| false).await;
    until_settled(&client(&server).await).await;
    let bodies = desk.bodies();
    let summaries = desk.close().await;
    let acknowledged: u64 = summaries.iter().map(|it| it.acknowledged).sum();
    assert_eq!((bodies.len(), bodies.values().max()), (500, Some(&1)));
    assert!(acknowledged >= 2_000, "{summaries:?}");
    assert!(dead_letters(&server).await.is_empty());
}

#[tokio::test]
async fn a_message_that_always_fails_is_a_dead_letter_with_its_headers() {
    let server = server().await;
    send(&server, 0..20).await;
    let odd = message("m-odd")
        .header("account", "7")
        .expected_stream(STREAM);
    publish(&server, odd).await;
    let desk = Desk::open(&server, 2, Duration::ZERO, |text| text == "m-odd").await;
    until_settled(&client(&server).await).await;
    assert_eq!(desk.bodies()["m-odd"], 3);
    desk.close().await;
    let letters = dead_letters(&server).await;
    let [(headers, payload)] = &*letters else {
        panic!("one dead letter: {letters:?}")
    };
    let header = |name: &str| headers.get(name).map(HeaderValue::as_str);
    assert_eq!(payload, "m-odd");
    assert_eq!(header("idem-id"), Some("m-odd"));
    assert_eq!(
        header("idem-reason"),
        Some(DeadLetterReason::Exhausted.as_str())
    );
    assert_eq!(header("idem-subject"), Some("bills.eu"));
    assert_eq!(header("account"), Some("7"));
    assert_eq!(header("Nats-Expected-Stream"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_leaves_no_message_unsettled_and_no_body_runs_twice() {
    let server = server().await;
    send(&server, 0..500).await;
    let desk = Desk::open(&server, 3, Duration::from_millis(20), |_| false).await;
    let some = async {
        while desk.bodies().len() < 100 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, some).await.expect("some bodies have run");
    tokio::task::block_in_place(|| server.restart());
    assert!(desk.bodies().len() < 500, "it restarted in the middle");
    until_settled(&client(&server).await).await;
    let bodies = desk.bodies();
    desk.close().await;
    assert_eq!((bodies.len(), bodies.values().max()), (500, Some(&1)));
    assert!(dead_letters(&server).await.is_empty());
}

#[tokio::test]
async fn a_handler_longer_than_the_broker_s_deadline_keeps_its_delivery() {
    let server = server().await;
    send(&server, [1]).await;
    let desk = Desk::open(&server, 2, 3 * ACK_WAIT, |_| false).await;
    let client = client(&server).await;
    until_settled(&client).await;
    assert_eq!(desk.bodies()["m-1"], 1);
    desk.close().await;
    let info = info(&client).await.unwrap();
    assert_eq!(info.delivered.consumer_sequence, 1, "deliveries: {info:?}");
}

#[tokio::test]
async fn a_delivery_that_is_dropped_unsettled_comes_again() {
    let server = server().await;
    let anonymous = PublishMessage::build().payload("bill".into());
    publish(&server, anonymous).await;
    let mut source = source(&server).await;
    let first = next(&mut source).await;
    assert_eq!((first.attempt(), first.payload()), (Some(1), &b"bill"[..]));
    let id = first.id().unwrap().into_owned();
    assert!(id.starts_with("bills:1:"), "{id}");
    drop(first);
    let second = next(&mut source).await;
    assert_eq!(second.attempt(), Some(2));
    assert_eq!(second.id().as_deref(), Some(&*id));
    second.settle(Verdict::Acknowledge).await.unwrap();
    until_settled(&client(&server).await).await;
}

#[tokio::test]
async fn a_delivery_that_is_given_back_comes_again_after_its_pause() {
    let server = server().await;
    send(&server, [1]).await;
    let mut source = source(&server).await.ack_wait(2 * PATIENCE);
    let first = next(&mut source).await;
    first.settle(Verdict::Stop).await.unwrap();
    let second = next(&mut source).await;
    let (start, pause) = (std::time::Instant::now(), Duration::from_millis(300));
    second.settle(Verdict::Retry(Some(pause))).await.unwrap();
    let third = next(&mut source).await;
    assert_eq!(third.attempt(), Some(3));
    assert!(start.elapsed() >= pause, "{:?}", start.elapsed());
}

/// The first dead letter was stored, and its delivery not settled.
#[tokio::test]
async fn a_dead_letter_that_is_published_again_is_stored_once() {
    let server = server().await;
    send(&server, [1]).await;
    let mut source = source(&server).await;
    let first = next(&mut source).await;
    let second = next(&mut source).await;
    assert_eq!(first.sequence(), second.sequence());
    let dead = Verdict::DeadLetter(DeadLetterReason::Business);
    first.settle(dead).await.unwrap();
    second.settle(dead).await.unwrap();
    assert_eq!(dead_letters(&server).await.len(), 1);
    until_settled(&client(&server).await).await;
}

#[tokio::test]
async fn a_durable_that_is_deleted_is_created_again_and_a_deleted_stream_is_an_error() {
    let server = server().await;
    send(&server, [1]).await;
    let mut source = source(&server).await;
    let first = next(&mut source).await;
    let client = client(&server).await;
    let deleted = client.delete_consumer_from_stream(DURABLE, STREAM).await;
    assert!(deleted.unwrap().success);
    let unconfirmed = first.settle(Verdict::Acknowledge).await.unwrap_err();
    assert!(
        unconfirmed.to_string().contains("no responders"),
        "{unconfirmed}"
    );
    assert_eq!(next(&mut source).await.attempt(), Some(1));
    client.delete_stream(STREAM).await.unwrap();
    let text = error(&mut source).await.to_string();
    assert!(text.contains("stream not found"), "{text}");
}

#[tokio::test]
async fn a_wrong_password_is_an_error_that_does_not_show_it() {
    let server = NatsServer::start_with_login("desk", "p@ss,word%");
    let url = |password: &str| format!("nats://desk:{password}@{}", server.addr());
    for wrong in ["wr0ng", "p@ss:word"] {
        let error = JetStream::connect(&url(wrong), STREAM, DURABLE).await;
        let error = error.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(wrong), "{shown}");
    }
    // The login is right, and there is no stream.
    let error = JetStream::connect(&url("p%40ss%2Cword%25"), STREAM, DURABLE).await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("stream not found"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_changed_ends_the_source() {
    let server = NatsServer::start_with_login("desk", "first");
    let url = server.url();
    let options = async_nats::ConnectOptions::with_user_and_password("desk".into(), "first".into());
    let context = jetstream::new(options.connect(server.addr().to_string()).await.unwrap());
    for name in [STREAM, "dead"] {
        let subject = format!("{name}.>");
        let (name, subjects) = (name.to_owned(), vec![subject]);
        let config = stream::Config {
            name,
            subjects,
            ..stream::Config::default()
        };
        context.create_stream(config).await.unwrap();
    }
    let mut source = JetStream::connect(&url, STREAM, DURABLE).await.unwrap();
    let ended = tokio::spawn(async move { error(&mut source).await });
    while info(&context).await.is_none() {
        sleep(Duration::from_millis(5)).await;
    }
    tokio::task::block_in_place(|| server.restart_with_login("desk", "second"));
    let error = ended.await.unwrap();
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("authorization violation"), "{shown}");
    assert!(!shown.contains("first"), "{shown}");
}

#[tokio::test]
async fn settings_that_would_lose_messages_are_errors() {
    let server = server().await;
    let mut filtered = source(&server).await.filter_subject("bills.us");
    send(&server, [1]).await;
    let cases = [
        (source(&server).await.dead_letters("letters"), "create one"),
        (
            source(&server).await.dead_letters("bills.dead"),
            "another one",
        ),
    ];
    for (mut source, remedy) in cases {
        let text = error(&mut source).await.to_string();
        assert!(text.contains(remedy), "{text}");
    }
    assert!(
        timeout(ACK_WAIT, filtered.next()).await.is_err(),
        "its filter is another subject"
    );
    let text = error(&mut source(&server).await).await.to_string();
    assert!(text.contains("another filter"), "{text}");
}
