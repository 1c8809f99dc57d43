use axum::Json;
use idem_runtime::http::IdempotencyKey;
use idem_runtime::{Error, idempotent};

#[idempotent(op = "orders.create", key = key, on_error = release)]
async fn create(IdempotencyKey(key): IdempotencyKey) -> Result<Json<u32>, Error> {
    Ok(Json(1))
}

fn main() {}
