use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release, max_attempts = 70_000)]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
