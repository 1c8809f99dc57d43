use idem_runtime::{Error, idempotent};

#[derive(serde::Serialize)]
struct Order {
    number: u64,
}

#[idempotent(key = order.number, label = order, on_error = release)]
async fn an_expression(order: Order) -> Result<u64, Error> {
    Ok(order.number)
}

#[idempotent(key = order.number, label = "order {order}", on_error = release)]
async fn in_a_format_string(order: Order) -> Result<u64, Error> {
    Ok(order.number)
}

fn main() {}
