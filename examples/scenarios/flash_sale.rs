//! A flash sale: many buyers, few items, one order for each buyer, and no item sold twice.
//!
//! `cargo run --release --example flash_sale` lets 100,000 buyers ask one to three times each for 10,000 items. Redis
//! (`REDIS_URL`, or one of its own) counts the stock and has idem's records; `PostgreSQL` (`DATABASE_URL`, or one of
//! its own) has the orders, and is asked only for buyers who got an item. One of 50 orders fails. The sale is held
//! twice: with one hot stock, and with the stock split in segments. `--unprotected` (debug builds) shows the same
//! without idem, and exits with 1.

use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use clap::Parser;
use idem_examples::scenario::{Books, Options, Server, count, hammer, pause, repeat};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Classify, Engine, Error, idempotent};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Script};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// Takes a piece of the first possible segment from the buyer's on. Returns the segment's number; 0: sold out. On a
/// cluster, the keys of a script need a common hash tag, or the segments are asked one by one.
const TAKE: &str = "
for i = 0, #KEYS - 1 do
    local segment = (ARGV[1] + i) % #KEYS + 1
    if tonumber(redis.call('GET', KEYS[segment])) >= 1 then
        redis.call('DECRBY', KEYS[segment], 1)
        return segment
    end
end
return 0";

/// No unique index on the buyer: the books show idem's effect. A shop has one, as the last line.
const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_sale CASCADE;
CREATE SCHEMA idem_sale;
CREATE TABLE idem_sale.stock (segment bigint PRIMARY KEY, pieces bigint NOT NULL CHECK (pieces >= 0));
CREATE TABLE idem_sale.orders (number bigserial PRIMARY KEY, buyer bigint NOT NULL, segment bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp())";

/// Locks the row of its segment: orders of one segment wait for each other.
const ORDER: &str = "
WITH taken AS (UPDATE idem_sale.stock SET pieces = pieces - 1 WHERE segment = $1 AND pieces >= 1 RETURNING segment)
INSERT INTO idem_sale.orders (buyer, segment) SELECT $2, segment FROM taken RETURNING number";

const SOLD_IN: &str = "SELECT coalesce(extract(epoch FROM max(at) - min(at)) * 1000, 0)::bigint FROM idem_sale.orders";

#[derive(Debug, PartialEq, Serialize, Deserialize, Classify)]
enum SaleError {
    /// An answer: it stays.
    #[class(business)]
    SoldOut,
    /// Nothing has happened, and a repeat runs.
    #[class(system)]
    Busy,
    /// The reply is lost, and the order may be there: no body runs until a hook (`reconcile`) or an operator has looked.
    #[class(unknown)]
    Unconfirmed,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for SaleError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<RedisError> for SaleError {
    fn from(_: RedisError) -> Self {
        Self::Busy // if a piece was taken, it stays unsold until stock and orders are compared
    }
}

struct Sale {
    name: String,
    stock: Vec<String>,
    redis: MultiplexedConnection,
    pool: PgPool,
    take: Script,
    bodies: AtomicI64,
    orders: AtomicI64,
}

// The key is the buyer, so there is one order for each; the scope is the sale.
#[idempotent(op = "sale.buy", scope = sale.name, key = buyer, ttl = "24h")]
async fn buy(#[idem(skip)] sale: &Sale, buyer: i64) -> Result<i64, SaleError> {
    sale.bodies.fetch_add(1, Relaxed);
    let mut redis = sale.redis.clone();
    let mut take = sale.take.key(&sale.stock);
    let segment: i64 = take.arg(buyer).invoke_async(&mut redis).await?;
    if segment == 0 {
        return Err(SaleError::SoldOut);
    }
    match order(sale, segment, buyer).await {
        Ok(number) => number.ok_or(SaleError::SoldOut),
        Err(sqlx::Error::Database(_) | sqlx::Error::PoolTimedOut) => {
            // There is no order for certain. The piece is for the next buyer, or for this one's repeat.
            let mut back = redis::cmd("INCRBY");
            back.arg(format!("{}:stock:{segment}", sale.name)).arg(1);
            () = back.query_async(&mut redis).await?;
            Err(SaleError::Busy)
        }
        Err(_) => Err(SaleError::Unconfirmed),
    }
}

/// The number of the order; `None`: the database has no piece.
async fn order(sale: &Sale, segment: i64, buyer: i64) -> Result<Option<i64>, sqlx::Error> {
    // A database that is too busy for one order of 50.
    if sale.orders.fetch_add(1, Relaxed) % 50 == 49 {
        return Err(sqlx::Error::PoolTimedOut);
    }
    let order = sqlx::query_scalar(ORDER).bind(segment).bind(buyer);
    order.fetch_optional(&sale.pool).await
}

/// The calls in their order: two of three buyers click twice, and one of three comes back later.
fn calls(buyers: i64) -> Vec<i64> {
    let clicks = |buyer: i64| std::iter::repeat_n(buyer, if buyer % 3 == 0 { 1 } else { 2 });
    let later = (0..buyers).filter(|buyer| buyer % 3 == 2);
    (0..buyers).flat_map(clicks).chain(later).collect()
}

#[derive(Clone, Copy, Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// A fiftieth of it in debug builds.
    #[arg(long, default_value_t = if cfg!(debug_assertions) { 2_000 } else { 100_000 })]
    buyers: i64,
    /// A fiftieth of it in debug builds.
    #[arg(long, default_value_t = if cfg!(debug_assertions) { 200 } else { 10_000 })]
    items: i64,
}

/// One sale, with its stock in so many segments.
async fn hold(
    (what, segments): (&'static str, i64),
    args: Args,
    engine: &Engine,
    (redis, pool): (&MultiplexedConnection, &PgPool),
    books: &mut Books,
) -> Result<(), Box<dyn std::error::Error>> {
    // Another name in each run, so that no record of an earlier one answers.
    let name = format!("idem-sale-{:016x}", RandomState::new().hash_one(0));
    let key = |segment| format!("{name}:stock:{segment}");
    let stock = (1..=segments).map(key).collect();
    let mut redis = redis.clone();
    sqlx::raw_sql(SCHEMA).execute(pool).await?;
    for segment in 1..=segments {
        let pieces = args.items / segments + i64::from(segment <= args.items % segments);
        let mut set = redis::cmd("SET");
        set.arg(key(segment)).arg(pieces);
        () = set.arg("EX").arg(86_400).query_async(&mut redis).await?;
        let row = sqlx::query("INSERT INTO idem_sale.stock VALUES ($1, $2)").bind(segment);
        row.bind(pieces).execute(pool).await?;
    }
    let sale = Arc::new(Sale {
        name,
        stock,
        redis: redis.clone(),
        pool: pool.clone(),
        take: Script::new(TAKE),
        bodies: 0.into(),
        orders: 0.into(),
    });
    let (with, calls) = ((engine.clone(), sale.clone()), calls(args.buyers));
    let load = hammer(what, 256, calls, with, |(engine, sale), buyer| async move {
        let call = || engine.scope(buy(&sale, buyer));
        repeat(call, |error| match error {
            SaleError::Busy => Some(Duration::ZERO),
            SaleError::Idempotency(error) => pause(error),
            _ => None,
        })
        .await
    })
    .await;
    let mut get = redis::cmd("MGET");
    let left: Vec<i64> = get.arg(&sale.stock).query_async(&mut redis).await?;
    let orders = count(pool, "SELECT count(*) FROM idem_sale.orders").await?;
    let buyers = count(pool, "SELECT count(DISTINCT buyer) FROM idem_sale.orders").await?;
    let pieces = count(pool, "SELECT sum(pieces)::bigint FROM idem_sale.stock").await?;
    let errors = load.count(|answer| !matches!(answer, Ok(_) | Err(SaleError::SoldOut)));
    let (ran, failed) = (sale.bodies.load(Relaxed), sale.orders.load(Relaxed) / 50);
    books
        .note(what, "")
        .check("  orders", orders, args.items)
        .check("  buyers with an order", buyers, args.items)
        .check("  pieces left in Redis", left.iter().sum(), 0)
        .check("  pieces left in PostgreSQL", pieces, 0)
        .check("  repeats with another answer", load.contradictions(), 0)
        .check("  other errors", errors, 0)
        .check("  bodies, with failed ones", ran, args.buyers + failed)
        .note("  sold out after, ms", count(pool, SOLD_IN).await?);
    load.speed(books);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let args = Args::parse();
    let (redis, postgres) = (Server::redis(), Server::postgres());
    let engine = args.options.engine(RedisStore::connect(redis.url()).await?);
    let stock = redis.client().await?;
    // Far fewer connections than callers, as in a shop.
    let pool = PgPoolOptions::new().max_connections(10);
    let pool = pool.connect(postgres.url()).await?;
    let Args { items, buyers, .. } = args;
    let mut books = Books::new(&format!("flash sale: {items} items, {buyers} buyers"));
    for sale in [("one hot stock", 1), ("stock in 16 segments", 16)] {
        hold(sale, args, &engine, (&stock, &pool), &mut books).await?;
    }
    Ok(books.close())
}
