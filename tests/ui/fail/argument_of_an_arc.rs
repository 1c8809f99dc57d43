use idem_runtime::{Error, idempotent};
use std::sync::Arc;

#[derive(serde::Serialize)]
struct Request {
    cents: u64,
}

#[idempotent(key = order, on_error = release)]
async fn pay(order: u64, req: Arc<Request>) -> Result<u64, Error> {
    Ok(order + req.cents)
}

fn main() {}
