use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release)]
async fn pay(order: u64) -> Result<u64, Error> {
    order
}

fn main() {}
