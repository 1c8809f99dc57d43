//! Redis Streams, on a real server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_harness::RedisServer;
use idem_runtime::consumer::{
    Consumer, DeadLetterReason, Delivery as _, Raw, RedisStream, RedisStreamDelivery, Source as _,
    Summary, Verdict,
};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Class, Classify, Context, Engine};
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const STREAM: &str = "bills";
const GROUP: &str = "collectors";
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug, Deserialize, Serialize)]
struct Down;

impl Classify for Down {
    fn class(&self) -> Class {
        Class::System
    }
}

/// The number of bodies of each payload.
type Bodies = Arc<Mutex<BTreeMap<String, u32>>>;

/// A server that keeps its data on disk, because one without causes a warning.
fn server() -> RedisServer {
    RedisServer::builder().append_only_every_second().start()
}

async fn client(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn send(server: &RedisServer, ids: impl IntoIterator<Item = u32>) {
    let mut pipeline = redis::pipe();
    for id in ids {
        let id = format!("m-{id}");
        let add = pipeline.cmd("XADD").arg(STREAM).arg("*");
        add.arg("id").arg(&id).arg("payload").arg(&id).ignore();
    }
    let () = pipeline
        .query_async(&mut client(server).await)
        .await
        .unwrap();
}

async fn source(server: &RedisServer) -> RedisStream {
    let stream = RedisStream::connect(&server.url(), STREAM, GROUP)
        .await
        .unwrap();
    stream.visibility(Duration::from_secs(2))
}

async fn engine(server: &RedisServer) -> Engine {
    Engine::new(RedisStore::connect(server.url()).await.unwrap())
}

/// The entries that are delivered and not settled, and those that were not delivered.
async fn open(server: &RedisServer) -> usize {
    let mut client = client(server).await;
    let groups: Vec<BTreeMap<String, redis::Value>> = redis::cmd("XINFO")
        .arg("GROUPS")
        .arg(STREAM)
        .query_async(&mut client)
        .await
        .unwrap();
    let number = |name: &str| redis::from_redis_value::<usize>(groups[0][name].clone()).unwrap();
    number("pending") + number("lag")
}

async fn dead_letters(server: &RedisServer) -> Vec<BTreeMap<String, String>> {
    let found: Vec<(String, BTreeMap<String, String>)> = redis::cmd("XRANGE")
        .arg(format!("{STREAM}:dead"))
        .arg("-")
        .arg("+")
        .query_async(&mut client(server).await)
        .await
        .unwrap();
    found.into_iter().map(|(_, fields)| fields).collect()
}

/// Consumes until every entry is settled.
async fn consume(
    server: &RedisServer,
    consumers: usize,
    fails: fn(&str) -> bool,
) -> (Vec<Summary>, Bodies) {
    let bodies = Bodies::default();
    let mut running = JoinSet::new();
    let (stop, stopped) = watch::channel(false);
    for _ in 0..consumers {
        let bodies = Arc::clone(&bodies);
        let handler = move |message: Raw, _: Context| {
            let text = String::from_utf8(message.0).unwrap();
            *bodies.lock().unwrap().entry(text.clone()).or_default() += 1;
            async move { if fails(&text) { Err(Down) } else { Ok(()) } }
        };
        let consumer = Consumer::new(engine(server).await, "bills.collect")
            .dead_letter_after(3)
            .retry_after(Duration::from_millis(10));
        let (source, mut stopped) = (source(server).await, stopped.clone());
        let stopped = async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        running.spawn(async move { consumer.run_until(source, handler, stopped).await.unwrap() });
    }
    let settled = async {
        while open(server).await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, settled)
        .await
        .expect("every entry is settled");
    stop.send_replace(true);
    (running.join_all().await, bodies)
}

#[tokio::test]
async fn three_consumers_run_one_body_for_each_id() {
    let server = server();
    send(&server, (0..2_000).map(|number| number % 500)).await;
    let (summaries, bodies) = consume(&server, 3, |_| false).await;
    let acknowledged: u64 = summaries.iter().map(|it| it.acknowledged).sum();
    let bodies = bodies.lock().unwrap().clone();
    assert_eq!((bodies.len(), bodies.values().max()), (500, Some(&1)));
    assert!(acknowledged >= 2_000, "{summaries:?}");
    assert!(dead_letters(&server).await.is_empty());
}

#[tokio::test]
async fn failed_messages_are_taken_over_as_fast_as_they_are_handled() {
    let server = server();
    send(&server, 0..160).await;
    let since = Instant::now();
    let (_, bodies) = consume(&server, 1, |_| true).await;
    assert!(bodies.lock().unwrap().values().all(|bodies| *bodies == 3));
    // 320 retries; at 16 in a second they take 20 s.
    assert!(
        since.elapsed() < Duration::from_secs(10),
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test]
async fn a_message_that_always_fails_is_a_dead_letter_with_all_its_fields() {
    let server = server();
    send(&server, 0..20).await;
    let (_, bodies) = consume(&server, 2, |text| text == "m-7").await;
    assert_eq!(bodies.lock().unwrap()["m-7"], 3);
    let letters = dead_letters(&server).await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(
        (&*letters[0]["id"], &*letters[0]["payload"]),
        ("m-7", "m-7")
    );
    assert_eq!(
        letters[0]["idem-reason"],
        DeadLetterReason::Exhausted.as_str()
    );
}

async fn next(source: &mut RedisStream) -> RedisStreamDelivery {
    let next = timeout(PATIENCE, source.next()).await.unwrap();
    next.unwrap().unwrap()
}

#[tokio::test]
async fn an_entry_that_two_consumers_refuse_is_one_dead_letter() {
    let server = server();
    send(&server, [1]).await;
    let visibility = Duration::from_millis(1);
    let mut stalled = source(&server).await.visibility(visibility);
    let mut other = source(&server).await.visibility(visibility);
    let deliveries = [next(&mut stalled).await, next(&mut other).await];
    for delivery in deliveries {
        let verdict = Verdict::DeadLetter(DeadLetterReason::Exhausted);
        delivery.settle(verdict).await.unwrap();
    }
    assert_eq!(dead_letters(&server).await.len(), 1);
    assert_eq!(open(&server).await, 0);
}

/// The stream of the dead letters is of another type.
#[tokio::test]
async fn a_dead_letter_that_cannot_be_written_stays_in_the_queue() {
    let server = server();
    send(&server, [1]).await;
    server.cli(&["SET", &format!("{STREAM}:dead"), "no stream"]);
    let delivery = next(&mut source(&server).await).await;
    let verdict = Verdict::DeadLetter(DeadLetterReason::Exhausted);
    assert!(delivery.settle(verdict).await.is_err());
    assert_eq!(open(&server).await, 1, "it would be lost");
}

#[tokio::test]
async fn a_password_that_was_changed_stops_the_reader() {
    let server = RedisServer::builder().password("former").start();
    let mut source = source(&server).await;
    server.cli(&["CONFIG", "SET", "requirepass", "present"]);
    server.cli(&["CLIENT", "KILL", "TYPE", "normal", "USER", "default"]);
    let next = timeout(PATIENCE, source.next()).await.unwrap();
    assert!(next.is_err(), "{next:?}");
}

/// The reader reconnects, and the group is there again.
#[tokio::test]
async fn a_server_that_lost_its_data_gets_its_group_again() {
    let server = RedisServer::start();
    let mut source = source(&server).await;
    server.kill();
    server.restart();
    send(&server, [1]).await;
    let delivery = next(&mut source).await;
    assert_eq!(delivery.field("id"), Some(&b"m-1"[..]));
}

#[tokio::test]
async fn a_delivery_and_its_source_show_neither_payload_nor_password() {
    let server = server();
    // Long, so that no random name of a consumer contains it.
    send(&server, [4_242_424_242]).await;
    let mut source = source(&server).await;
    let next = idem_runtime::consumer::Source::next(&mut source);
    let delivery = timeout(PATIENCE, next).await.unwrap().unwrap().unwrap();
    let shown = format!("{source:?} {delivery:?}");
    assert!(shown.contains(STREAM), "{shown}");
    assert!(
        !shown.contains("4242424242") && !shown.contains("redis://"),
        "{shown}"
    );
}
