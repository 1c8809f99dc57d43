use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release, ttl = seconds)]
async fn pay(order: u64, seconds: u64) -> Result<u64, Error> {
    let _ = order;
    Ok(1)
}

fn main() {}
