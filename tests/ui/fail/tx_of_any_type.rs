use idem_runtime::{Error, idempotent};

#[idempotent(op = "pay", key = order, on_error = release, tx = tx)]
async fn generic<T: Send>(order: u64, tx: &mut T) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

#[idempotent(op = "refund", key = order, on_error = release, tx = tx)]
async fn opaque(order: u64, tx: &mut impl Send) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

fn main() {}
