use idem_runtime::{Error, idempotent};

#[idempotent(key = order, scope = "tenant")]
async fn pay(order: u64, tenant: &str) -> Result<u64, Error> {
    let _ = tenant;
    Ok(order)
}

fn main() {}
