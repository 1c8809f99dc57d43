use idem_runtime::{Error, idempotent};

#[idempotent(op = "payments.pay", key = order, on_error = release, entry = pay)]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
