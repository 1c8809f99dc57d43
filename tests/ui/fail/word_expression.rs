use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release, on_panic = Some(1))]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
