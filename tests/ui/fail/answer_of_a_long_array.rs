use idem_runtime::{Error, idempotent};

#[idempotent(key = order)]
async fn sign(order: u64) -> Result<[u8; 40], Error> {
    Ok([u8::try_from(order).unwrap_or(0); 40])
}

fn main() {}
