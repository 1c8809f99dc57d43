use idem_runtime::{Error, idempotent};

struct Order;

#[idempotent(key = (order, amount), fingerprint = none, on_error = release)]
async fn pay(order: Order, amount: u64) -> Result<u64, Error> {
    let _ = order;
    Ok(amount)
}

fn main() {}
