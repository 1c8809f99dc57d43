use idem_runtime::{Error, idempotent};

#[idempotent(op = "pay\nme", key = order)]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
