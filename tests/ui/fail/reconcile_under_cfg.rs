use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release, reconcile = find)]
async fn pay(order: u64, #[cfg(not(windows))] note: u8) -> Result<u64, Error> {
    let _ = note;
    Ok(order)
}

fn main() {}
