use idem_runtime::{Error, idempotent};

#[derive(Clone, serde::Serialize)]
struct Req {
    id: u64,
    cents: u64,
}

#[idempotent(key = req.id, req.cents)]
async fn pay(req: Req) -> Result<u64, Error> {
    Ok(req.id + req.cents)
}

#[idempotent(key = a, b)]
async fn add(a: u64, b: u64) -> Result<u64, Error> {
    Ok(a + b)
}

fn main() {}
