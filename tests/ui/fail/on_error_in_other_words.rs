use idem_runtime::{Error, idempotent};

#[idempotent(op = "a", key = order, on_error = released)]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(op = "b", key = order, on_error = idem_runtime::Class::System)]
async fn refund(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
