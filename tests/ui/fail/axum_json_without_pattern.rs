use axum::Json;
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Error, idempotent};
use serde::Serialize;

#[derive(Serialize)]
struct NewOrder {
    item: String,
}

// It authenticates no client: all share one namespace.
#[idempotent(op = "orders.create", scope = public, key = key, on_error = release)]
async fn create(key: IdempotencyKey, order: Json<NewOrder>) -> Result<Reply<u32>, Error> {
    let _ = order;
    Ok(Reply::created(1))
}

fn main() {}
