use idem_runtime::{Error, idempotent};

#[idempotent(op = "pay", key = order, on_cancel = finish)]
async fn pay<T: serde::Serialize>(order: T) -> Result<u64, Error> {
    let _ = order;
    Ok(1)
}

fn main() {}
