use axum::response::IntoResponse;
use idem_runtime::http::IdempotencyKey;
use idem_runtime::idempotent;

// It authenticates no client: all share one namespace.
#[idempotent(op = "orders.create", scope = public, key = key, on_error = release)]
async fn create(IdempotencyKey(key): IdempotencyKey) -> impl IntoResponse {
    let _ = key;
    "created"
}

fn main() {}
