use idem_runtime::{Error, idempotent};

#[idempotent(key = order)]
async fn pay(order: u64, _: &str) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
