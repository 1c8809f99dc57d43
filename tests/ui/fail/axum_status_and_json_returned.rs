use axum::Json;
use axum::http::StatusCode;
use idem_runtime::http::IdempotencyKey;
use idem_runtime::{Error, idempotent};

// It authenticates no client: all share one namespace.
#[idempotent(op = "orders.create", scope = public, key = key, on_error = release)]
async fn create(IdempotencyKey(key): IdempotencyKey) -> Result<(StatusCode, Json<u32>), Error> {
    Ok((StatusCode::CREATED, Json(1)))
}

fn main() {}
