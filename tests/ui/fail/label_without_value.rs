use idem_runtime::{Error, idempotent};

#[idempotent(key = order, label, on_error = release)]
async fn nothing(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, label("order {order}"), on_error = release)]
async fn in_parentheses(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, label = "{order}", label = "order {order}", on_error = release)]
async fn twice(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
