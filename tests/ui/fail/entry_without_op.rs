use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release, entry = pay_entry)]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
