//! Two processes share a Redis: the body runs in one of them, and both get its answer.
//!
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run --example redis` prints:
//!
//! ```text
//! both at once
//!     (the body runs)
//!     north: 2 parcels shipped
//!     south: 2 parcels shipped
//! again
//!     south: 2 parcels shipped
//! the same order with other contents
//!     north: `shop.ship`: this key was used before with other arguments; use a new key for a new request
//! ```

#![allow(clippy::print_stdout, reason = "the program shows its answers")]

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, idempotent};

const USAGE: &str = "\
redis: REDIS_URL is not set. Start a server with `redis-server` or `docker run -p 6379:6379 redis`, and then
REDIS_URL=redis://127.0.0.1:6379 cargo run --example redis";

/// An error of this body releases the key: a repeat runs the body.
#[idempotent(op = "shop.ship", key = order_no, ttl = "24h", on_error = release)]
async fn ship(order_no: &str, parcels: u32) -> Result<String, idem_runtime::Error> {
    println!("    (the body runs)");
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(format!("{parcels} parcels shipped"))
}

/// The start of a process of the service.
async fn connect(url: &str) -> Result<Engine, Box<dyn Error>> {
    // Fails if the server cannot keep records, because of its eviction policy for example.
    let store = RedisStore::connect(url).await?;
    let engine = Engine::builder(store)
        // The first part of the name of each record, different from that of any other service.
        .prefix("idem-example")
        // After a crash another process can claim the key when this has passed. A living process
        // renews its lease as long as the body runs.
        .lease(Duration::from_secs(10))
        .build()?;
    Ok(engine)
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Ok(url) = std::env::var("REDIS_URL") else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    // Two engines with connections of their own stand for two processes. A program with one engine
    // installs it, `engine.install()?`, and calls the function without a scope.
    let north = connect(&url).await?;
    let south = connect(&url).await?;

    // A new order in each run of this program: the records of the last run are still in Redis.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let order = format!("order-{}", now.as_micros());

    println!("both at once");
    let (one, two) = tokio::join!(north.scope(ship(&order, 2)), south.scope(ship(&order, 2)));
    println!("    north: {}", one?);
    println!("    south: {}", two?);

    println!("again");
    println!("    south: {}", south.scope(ship(&order, 2)).await?);

    println!("the same order with other contents");
    if let Err(error) = north.scope(ship(&order, 3)).await {
        println!("    north: {error}");
    }

    // Waits for bodies under way, as after SIGTERM.
    for engine in [north, south] {
        engine.shutdown(Duration::from_secs(10)).await?;
    }
    Ok(ExitCode::SUCCESS)
}
