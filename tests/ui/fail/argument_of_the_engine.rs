use idem_runtime::{Error, idempotent};

#[idempotent(key = order, max_attempts = 1)]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
