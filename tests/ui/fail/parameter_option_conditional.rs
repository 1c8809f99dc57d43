use idem_runtime::{Error, idempotent};

#[idempotent(key = order)]
async fn pay(order: u64, #[cfg_attr(unix, idem(skip))] note: &str) -> Result<u64, Error> {
    let _ = note;
    Ok(order)
}

fn main() {}
