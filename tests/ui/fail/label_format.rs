use idem_runtime::{Error, idempotent};

struct Pay {
    order: u64,
}

#[idempotent(key = order, label = "order {}", on_error = release)]
async fn nameless(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = pay.order, fingerprint = none, label = "order {pay.order}", on_error = release)]
async fn a_field(pay: Pay) -> Result<u64, Error> {
    Ok(pay.order)
}

#[idempotent(key = order, label = ("order", order), on_error = release)]
async fn a_tuple(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
