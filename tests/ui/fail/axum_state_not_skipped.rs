use axum::extract::State;
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Error, idempotent};

#[derive(Clone)]
struct Shop;

// It authenticates no client: all share one namespace.
#[idempotent(op = "orders.create", scope = public, key = key, on_error = release)]
async fn create(
    State(shop): State<Shop>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<Reply<u32>, Error> {
    let Shop = shop;
    Ok(Reply::created(1))
}

fn main() {}
