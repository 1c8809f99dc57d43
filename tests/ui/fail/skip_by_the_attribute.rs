use idem_runtime::{Error, idempotent};

#[idempotent(op = "a", key = order, on_error = release)]
async fn pay(order: u64, #[idempotent(skip)] note: String) -> Result<u64, Error> {
    let _ = note;
    Ok(order)
}

fn main() {}
