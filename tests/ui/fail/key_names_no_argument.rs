use idem_runtime::{Error, idempotent};

const TENANT: &str = "eu";

#[idempotent(key = TENANT.to_owned())]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
