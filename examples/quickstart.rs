//! `cargo run --example quickstart`: a function that runs once for each order.

use std::sync::atomic::{AtomicU32, Ordering};

use idem_runtime::{Engine, Error, idempotent, store::memory::MemoryStore};

static RUNS: AtomicU32 = AtomicU32::new(0);

#[idempotent(op = "quickstart.charge", key = order, ttl = "24h", on_error = release)]
async fn charge(order: &str, cents: u64) -> Result<String, Error> {
    RUNS.fetch_add(1, Ordering::Relaxed);
    Ok(format!("receipt for {order}: {cents} cents"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Records live in this process here; a `RedisStore` shares them between processes.
    Engine::new(MemoryStore::new()).install()?;

    let first = charge("order-7", 1_250).await?;
    let again = charge("order-7", 1_250).await?; // a double click, a retry, a redelivery
    assert_eq!(first, again);

    let other = charge("order-7", 9_999).await; // the same order with another amount
    eprintln!("{first}\n{again}\n{}", other.unwrap_err());
    eprintln!("the body ran {} time", RUNS.load(Ordering::Relaxed));
    Ok(())
}
