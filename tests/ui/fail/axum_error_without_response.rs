use axum::Router;
use axum::routing::post;
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Error, idempotent};

enum ApiError {
    Idem(Error),
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

// It authenticates no client: all share one namespace.
#[idempotent(op = "orders.create", scope = public, key = key, on_error = release)]
async fn create(IdempotencyKey(key): IdempotencyKey) -> Result<Reply<u32>, ApiError> {
    Ok(Reply::created(1))
}

fn main() {
    let _: Router = Router::new().route("/orders", post(create));
}
