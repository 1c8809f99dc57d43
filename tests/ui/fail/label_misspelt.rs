use idem_runtime::{Error, idempotent};

#[idempotent(key = order, label = "order {ordr}", on_error = release)]
async fn in_a_format_string(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, label = idem_runtime::key::redacted(&ordre, 4), on_error = release)]
async fn in_an_expression(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, lable = "order {order}", on_error = release)]
async fn itself(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
