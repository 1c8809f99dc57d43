use axum::extract::Path;
use idem_runtime::http::Reply;
use idem_runtime::{Error, idempotent};

#[idempotent(op = "orders.create", key = number, fingerprint = none, on_error = release)]
async fn create(number: Path<u32>) -> Result<Reply<u32>, Error> {
    Ok(Reply::created(*number))
}

fn main() {}
