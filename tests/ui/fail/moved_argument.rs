use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release)]
async fn pay(order: String) -> Result<usize, Error> {
    drop(order);
    Ok(order.len())
}

fn main() {}
