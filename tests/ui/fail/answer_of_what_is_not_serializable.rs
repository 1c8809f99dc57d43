use idem_runtime::{Error, idempotent};

struct Receipt;

#[idempotent(key = order, on_error = release)]
async fn pay(order: u64) -> Result<idem_runtime::Answer<Receipt>, Error> {
    let _ = order;
    Ok(Receipt.into())
}

fn main() {}
