use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Error, idempotent};

/// No token of `idem_runtime`.
fn token(key: &IdempotencyKey) -> String {
    key.0.clone()
}

#[idempotent(key = token(&key), on_error = release)]
async fn pay(key: IdempotencyKey) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(1))
}

fn main() {}
