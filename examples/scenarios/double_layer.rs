//! Redis answers repeats, and the database decides. A killed Redis costs neither an answer nor a second charge.
//!
//! `cargo run --example double_layer` makes 400 payments, each sent several times by 64 callers, on a layered store:
//! a Redis of its own in front of `PostgreSQL` (`DATABASE_URL`, or one of its own). One of 30 requests to the gateway
//! fails. Redis is killed in the middle of the load, stays away, and comes back in the middle of the load. The
//! first lines are the phases, and how many requests Redis answered; concurrent calls of a payment share one, and
//! `PostgreSQL` answers all others. "Skipped" counts copies that were not made as well. `--unprotected` (debug builds)
//! shows the same without idem, and exits with 1.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Parser as _;
use idem_examples::scenario::{
    Books, Options, Server, contradictions, count, hammer, pause, repeat,
};
use idem_harness::RedisServer;
use idem_runtime::codec::EncryptionKeys;
use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Classify, Engine, Error, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_layers CASCADE;
CREATE SCHEMA idem_layers;
CREATE TABLE idem_layers.charges (id bigserial PRIMARY KEY, payment bigint NOT NULL)";

#[derive(Debug, PartialEq, Serialize, Deserialize, Classify)]
enum PayError {
    /// The gateway refused for now: nothing has happened, and a repeat runs.
    #[class(system)]
    Gateway,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for PayError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

/// The shop; its payment provider keeps its books in a table.
struct Shop {
    engine: Engine,
    store: LayeredStore,
    redis: RedisServer,
    pool: PgPool,
    requests: AtomicI64,
}

/// The id of the charge.
#[idempotent(op = "payments.pay", key = payment, ttl = "30d", on_cancel = finish)]
async fn pay(#[idem(skip)] shop: Arc<Shop>, payment: i64) -> Result<i64, PayError> {
    if shop.requests.fetch_add(1, Relaxed) % 30 == 29 {
        return Err(PayError::Gateway);
    }
    let charge = "INSERT INTO idem_layers.charges (payment) VALUES ($1) RETURNING id";
    let charge = sqlx::query_scalar(charge).bind(payment);
    let charge = charge.fetch_one(&shop.pool).await;
    charge.map_err(|_| PayError::Gateway)
}

/// Many callers, with events of Redis in the middle of their calls.
#[allow(clippy::print_stdout, reason = "the program shows its phases")]
async fn phase(
    shop: &Arc<Shop>,
    what: &'static str,
    event: fn(&RedisServer),
    payments: Vec<i64>,
) -> Vec<(i64, Result<i64, PayError>)> {
    let (before, middle) = (shop.store.stats(), payments.len() / 2);
    let shared = (shop.clone(), Arc::new(AtomicUsize::new(0)));
    let call = move |(shop, calls): (Arc<Shop>, Arc<AtomicUsize>), payment| async move {
        if calls.fetch_add(1, Relaxed) == middle {
            let shop = shop.clone();
            let event = tokio::task::spawn_blocking(move || event(&shop.redis));
            event.await.expect("Redis stops and starts");
        }
        let call = || shop.engine.scope(pay(shop.clone(), payment));
        repeat(call, |error| match error {
            PayError::Gateway => Some(Duration::ZERO),
            PayError::Idempotency(error) => pause(error), // such as: too many callers
        })
        .await
    };
    let load = hammer(what, 64, payments, shared, call).await;
    let after = shop.store.stats();
    println!(
        "{what}: {} calls, {} a second; Redis: answered {}, no copy {}, skipped {}, failed {}",
        load.answers.len(),
        load.per_second(),
        after.hits - before.hits,
        after.misses - before.misses,
        after.skipped - before.skipped,
        after.failures - before.failures,
    );
    load.answers
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let redis = RedisServer::builder().append_only_every_second().start();
    let (_server, pool, durable) = Server::with_tables(SCHEMA, "idem_layers.records", 10).await?;
    // `LazyStore` is for a program that may start without its Redis.
    let fast = RedisStore::connect(redis.url()).await?;
    let store = LayeredStore::new(fast, durable);
    // A writer of Redis can forge no answer: copies are sealed. The key is from your secret store.
    let keys = EncryptionKeys::new(1, [7; 32]);
    let shop = Arc::new(Shop {
        engine: options.builder(store.clone()).encrypt(keys).build()?,
        store: store.clone(),
        redis,
        pool: pool.clone(),
        requests: 0.into(),
    });
    let mut answers = Vec::new();
    let mut run = async |what, event, payments: Vec<i64>| {
        answers.extend(phase(&shop, what, event, payments).await);
    };
    let kill: fn(&RedisServer) = |redis| redis.kill();
    let restart: fn(&RedisServer) = |redis| redis.restart();
    let nothing = |_: &_| {};
    let twice = |payments: Range<i64>| payments.flat_map(|payment| [payment; 2]);
    run(
        "payments, each twice at once",
        nothing,
        twice(0..100).collect(),
    )
    .await;
    run("their repeats", nothing, twice(0..100).collect()).await;
    let mixed = twice(100..200)
        .zip(0..200)
        .flat_map(|(new, old)| [new, old]);
    run(
        "new ones and repeats; Redis is killed",
        kill,
        mixed.collect(),
    )
    .await;
    run("repeats without Redis", nothing, (0..200).collect()).await;
    run("new ones without Redis", nothing, twice(200..300).collect()).await;
    run(
        "new ones; Redis comes back",
        restart,
        twice(300..400).collect(),
    )
    .await;
    let deadline = Instant::now() + Duration::from_secs(30);
    while store.stats().degraded && Instant::now() < deadline {
        drop(shop.engine.scope(pay(shop.clone(), 0)).await); // calls probe for its return
    }
    let restored = Instant::now() < deadline;
    run("repeats of all", nothing, (0..400).collect()).await;
    run("once more", nothing, (0..400).collect()).await;

    let errors = answers.iter().filter(|(_, answer)| answer.is_err()).count();
    let charges = count(&pool, "SELECT count(*) FROM idem_layers.charges").await?;
    let paid = count(
        &pool,
        "SELECT count(DISTINCT payment) FROM idem_layers.charges",
    )
    .await?;
    let mut books = Books::new("double layer: 400 payments");
    books
        .check("payments with a charge", paid, 400)
        .check("charges", charges, 400)
        .check("repeats with another answer", contradictions(&answers), 0)
        .check("calls without an answer", errors, 0)
        .check("Redis is used again", restored, true);
    Ok(books.close())
}
