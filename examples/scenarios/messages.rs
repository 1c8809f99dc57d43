//! A consumer of Redis Streams handles each message once. It may be sent and may fail repeatedly.
//!
//! `cargo run --example messages` sends 200 messages two or three times each to a stream in Redis (`REDIS_URL`, or a
//! server of its own), which two consumers of one group read. Two thirds of the messages fail once or twice before the
//! effect and are delivered again; one fails always, and is a dead letter after five attempts; one has a business
//! error, and is a dead letter at once. `--unprotected` shows the same without idem, where the failing message returns
//! for ever (the program stops at its 20th body), and exits with 1.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser as _;
use idem_consumers::{Consumer, RedisStream};
use idem_examples::scenario::{Books, Options, Server};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Classify, Context, Policy};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value, cmd};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;

const STREAM: &str = "idem-messages";
const DEAD: &str = "idem-messages:dead";
const POINTS: &str = "idem-messages:points";
const GROUP: &str = "collectors";
const MESSAGES: u32 = 200;
const POISON: u32 = 13; // fails in every attempt
const NO_ACCOUNT: u32 = 17; // has a business error

static BODIES: Mutex<BTreeMap<u32, u32>> = Mutex::new(BTreeMap::new());

fn bodies() -> MutexGuard<'static, BTreeMap<u32, u32>> {
    BODIES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Deserialize, Serialize)]
struct Purchase {
    account: u32,
    points: u32,
}

#[derive(Debug, Serialize, Deserialize, Classify)]
enum CollectError {
    /// Kept: the message is a dead letter, and so are its repeats.
    #[class(business)]
    NoSuchAccount,
    /// Nothing happened: the message is delivered again, after a pause that doubles.
    #[class(system)]
    Down,
    /// The effect was begun, and its reply is lost: a dead letter, until a person has found out.
    #[class(unknown)]
    Silent,
}

impl From<RedisError> for CollectError {
    fn from(_: RedisError) -> Self {
        Self::Silent
    }
}

/// The handler: an ordinary function. The consumer makes the call idempotent, by the id of the message.
async fn collect(
    mut redis: MultiplexedConnection,
    it: Purchase,
    _: Context,
) -> Result<u32, CollectError> {
    let run = *bodies()
        .entry(it.account)
        .and_modify(|run| *run += 1)
        .or_insert(1);
    match it.account {
        NO_ACCOUNT => Err(CollectError::NoSuchAccount),
        POISON => Err(CollectError::Down),
        account if run <= account % 3 => Err(CollectError::Down),
        account => {
            let mut add = cmd("HINCRBY");
            let add = add.arg(POINTS).arg(account).arg(it.points);
            Ok(add.query_async(&mut redis).await?)
        }
    }
}

fn copies(message: u32) -> u32 {
    2 + message % 2
}

async fn send(redis: &mut MultiplexedConnection) -> Result<u32, Box<dyn std::error::Error>> {
    // Records of an earlier run may still be in a Redis of yours.
    let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let mut pipeline = redis::pipe();
    pipeline.del(&[STREAM, DEAD, POINTS]).ignore();
    let mut entries = 0;
    for copy in 0..3 {
        for account in (0..MESSAGES).filter(|message| copy < copies(*message)) {
            let purchase = serde_json::to_string(&Purchase { account, points: 5 })?;
            let add = pipeline.cmd("XADD").arg(STREAM).arg("*");
            // The producer's id, the same in each copy. The entry's own id is not.
            let add = add.arg("id").arg(format!("{run}-{account}"));
            add.arg("payload").arg(purchase).ignore();
            entries += 1;
        }
    }
    let () = pipeline.query_async(redis).await?;
    Ok(entries)
}

/// The entries of the group that are not settled.
async fn open(redis: &mut MultiplexedConnection) -> RedisResult<u32> {
    let mut info = cmd("XINFO");
    let info = info.arg("GROUPS").arg(STREAM);
    let groups: Vec<BTreeMap<String, Value>> = info.query_async(redis).await?;
    let number = |name: &str| redis::from_redis_value::<u32>(groups[0][name].clone());
    Ok(number("pending")? + number("lag")?)
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let server = Server::redis();
    let mut redis = server.client().await?;
    let entries = send(&mut redis).await?;

    let (stop, stopped) = watch::channel(());
    let mut consumers = JoinSet::new();
    for _ in 0..2 {
        let engine = options.engine(RedisStore::connect(server.url()).await?);
        let consumer = Consumer::new(engine, "points.collect")
            .concurrency(32)
            .dead_letter_after(5)
            .retry_after(Duration::from_millis(10))
            .policy(Policy::new().ttl(Duration::from_hours(48)));
        let source = RedisStream::connect(server.url(), STREAM, GROUP).await?;
        let (redis, mut stopped) = (redis.clone(), stopped.clone());
        let handler = move |it, cx| collect(redis.clone(), it, cx);
        consumers.spawn(async move {
            let stopped = async { drop(stopped.changed().await) };
            consumer.run_until(source, handler, stopped).await
        });
    }
    let unsettled = loop {
        let open = open(&mut redis).await?;
        let given_up = bodies().get(&POISON).is_some_and(|runs| *runs >= 20);
        if open == 0 || given_up {
            break open;
        }
        tokio::time::sleep(Duration::from_millis(50)).await; // between two looks
    };
    stop.send_replace(());
    let (mut acknowledged, mut dead, mut retried) = (0, 0, 0);
    for summary in consumers.join_all().await {
        let summary = summary?;
        acknowledged += summary.acknowledged;
        dead += summary.dead_letters;
        retried += summary.retried;
    }

    let letters: Vec<(String, BTreeMap<String, String>)> = cmd("XRANGE")
        .arg(DEAD)
        .arg("-")
        .arg("+")
        .query_async(&mut redis)
        .await?;
    let of = |reason: &str| {
        let of = |(_, fields): &&(_, BTreeMap<String, String>)| fields["idem-reason"] == reason;
        letters.iter().filter(of).count()
    };
    let points: BTreeMap<u32, u32> = cmd("HGETALL").arg(POINTS).query_async(&mut redis).await?;
    let good = MESSAGES - 2;
    let dead_copies = copies(POISON) + copies(NO_ACCOUNT);
    let expected_bodies: u32 = (0..MESSAGES)
        .filter(|n| ![POISON, NO_ACCOUNT].contains(n))
        .map(|n| 1 + n % 3)
        .sum();
    let bodies = bodies();
    let mut books = Books::new("messages: Redis Streams, two consumers");
    books
        .note("entries in the stream", entries)
        .check("  not settled", unsettled, 0)
        .check(
            "  acknowledged",
            acknowledged,
            (entries - dead_copies).into(),
        )
        .check("  dead letters", dead, dead_copies.into())
        .check(
            "    of the message that always fails",
            of("exhausted"),
            copies(POISON) as usize,
        )
        .check(
            "    of the business error",
            of("business"),
            copies(NO_ACCOUNT) as usize,
        )
        .check("accounts with points", points.len(), good as usize)
        .check("points", points.values().sum(), good * 5)
        .check("bodies", bodies.values().sum(), expected_bodies + 5 + 1)
        .check("  of the message that always fails", bodies[&POISON], 5)
        .check("  of the business error", bodies[&NO_ACCOUNT], 1)
        .note("deliveries given back for a retry", retried);
    Ok(books.close())
}
