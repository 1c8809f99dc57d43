use idem_runtime::{Error, idempotent};

#[derive(serde::Serialize)]
struct Order(u64);

#[idempotent(key = "order-{order}", on_error = release)]
async fn pay(order: Order) -> Result<u64, Error> {
    Ok(order.0)
}

fn main() {}
