//! `cargo run --example quickstart`: the same call twice, and its body runs once.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use idem_runtime::{Engine, Error, idempotent, store::memory::MemoryStore};

// The order is the key. Every error of this body releases the key, so that a retry runs.
#[idempotent(op = "quickstart.charge", key = order, ttl = "24h", on_error = release)]
async fn charge(order: &str, cents: u64) -> Result<String, Error> {
    println!("the body runs: {cents} cents for {order}");
    Ok(format!("receipt 1 for {order}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The records live in this process; with a `RedisStore` here, all processes share them.
    Engine::new(MemoryStore::new()).install()?;

    println!("first call:   {}", charge("order-7", 1_250).await?);
    println!("again:        {}", charge("order-7", 1_250).await?);

    // The key of one request with the content of another is a mistake of the caller.
    if let Err(refusal) = charge("order-7", 9_999).await {
        println!("other amount: {refusal}");
    }
    Ok(())
}
