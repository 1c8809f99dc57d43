use idem_runtime::{Error, idempotent};

#[idempotent(key = order)]
async fn pay(order: &str) -> Result<&str, Error> {
    Ok(order)
}

fn main() {}
