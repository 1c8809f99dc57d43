use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release, error_ttl = "1h")]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = unknown, error_ttl = "1h")]
async fn refund(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
