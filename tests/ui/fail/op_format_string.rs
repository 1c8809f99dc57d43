use idem_runtime::{Error, idempotent};

#[idempotent(op = "pay.{tenant}", key = order)]
async fn pay(order: u64, tenant: &str) -> Result<u64, Error> {
    let _ = tenant;
    Ok(order)
}

fn main() {}
