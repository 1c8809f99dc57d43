use idem_runtime::{Error, idempotent};

#[idempotent(key = "order-{order}}")]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
