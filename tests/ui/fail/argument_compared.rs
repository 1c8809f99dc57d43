use idem_runtime::{Error, idempotent};

#[idempotent(key == order)]
async fn pay(order: u64) -> Result<u64, Error> {
    let _ = order;
    Ok(1)
}

fn main() {}
