use idem_runtime::idempotent;

struct PayError;

#[idempotent(key = order, on_error = release)]
async fn pay(order: u64) -> Result<u64, PayError> {
    if order == 0 { Err(PayError) } else { Ok(order) }
}

fn main() {}
