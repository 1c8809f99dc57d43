use axum::Json;
use axum::http::StatusCode;
use idem_runtime::http::IdempotencyKey;
use idem_runtime::{Error, idempotent};

#[idempotent(op = "orders.create", key = key, on_error = release)]
async fn create(IdempotencyKey(key): IdempotencyKey) -> Result<(StatusCode, Json<u32>), Error> {
    Ok((StatusCode::CREATED, Json(1)))
}

fn main() {}
