use idem_runtime::{Error, idempotent};

#[idempotent(idempotency_key = order, expiry = "24h", wait = "5s", skip(note))]
async fn pay(order: u64, note: String) -> Result<u64, Error> {
    let _ = note;
    Ok(order)
}

fn main() {}
