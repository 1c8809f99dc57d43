use idem_runtime::{Error, idempotent};

#[idempotent(op = "pay")]
async fn pay(#[idem(skip)] order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
