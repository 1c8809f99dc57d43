use idem_runtime::{Error, idempotent};

#[idempotent(key = order, ttl = 24h, on_running = wait(5), error_ttl = 0x10)]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
