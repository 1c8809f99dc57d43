use idem_runtime::{Error, idempotent};

#[idempotent(op = "a", key: id, on_error = release)]
async fn colon(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[idempotent(op = "a", key(id), on_error = release)]
async fn parentheses(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
