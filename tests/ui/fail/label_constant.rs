use idem_runtime::{Error, idempotent};

#[idempotent(key = order, label = "a payment", on_error = release)]
async fn text(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, label = 7, on_error = release)]
async fn number(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, label = &"", on_error = release)]
async fn empty(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
