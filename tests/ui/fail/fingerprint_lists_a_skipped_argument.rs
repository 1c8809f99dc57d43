use idem_runtime::{Error, idempotent};

#[idempotent(key = order, fingerprint(order, note))]
async fn pay(order: u64, #[idem(skip)] note: &str) -> Result<u64, Error> {
    let _ = note;
    Ok(order)
}

fn main() {}
