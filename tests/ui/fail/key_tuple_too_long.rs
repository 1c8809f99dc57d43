use idem_runtime::{Error, idempotent};

#[idempotent(key = (a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a))]
async fn pay(a: u64) -> Result<u64, Error> {
    Ok(a)
}

fn main() {}
