use idem_runtime::{Error, idempotent};

#[idempotent(key = order)]
async fn pay(order: u64, #[idem] a: u64, #[idem = "skip"] b: u64) -> Result<u64, Error> {
    Ok(order + a + b)
}

fn main() {}
