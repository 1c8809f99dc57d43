use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release, lease = "30s", max_run = "10s")]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
