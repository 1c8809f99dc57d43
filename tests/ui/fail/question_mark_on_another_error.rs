use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release)]
async fn pay(order: &str) -> Result<u64, Error> {
    Ok(order.parse::<u64>()?)
}

fn main() {}
