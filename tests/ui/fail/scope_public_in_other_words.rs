use idem_runtime::{Error, idempotent};

#[idempotent(key = order, scope = "public", on_error = release)]
async fn quoted(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, scope = none, on_error = release)]
async fn by_analogy(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, scope = Public, on_error = release)]
async fn as_a_variant(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
