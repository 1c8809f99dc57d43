use idem_runtime::{Error, idempotent};

#[idempotent(op = "pay", key = order, on_error = release, on_cancel = finish)]
async fn pay<T: Send>(order: u64, #[idem(skip)] note: T) -> Result<u64, Error> {
    drop(note);
    Ok(order)
}

fn main() {}
