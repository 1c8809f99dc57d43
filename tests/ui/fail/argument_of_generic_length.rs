use idem_runtime::{Error, idempotent};

#[idempotent(op = "orders.import")]
async fn import<const N: usize>(file: [u8; N]) -> Result<u64, Error> {
    Ok(file.len() as u64)
}

fn main() {}
