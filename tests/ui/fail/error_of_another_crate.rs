use idem_runtime::idempotent;

#[idempotent(key = order, on_error = release)]
async fn pay(order: u64) -> Result<u64, String> {
    Ok(order)
}

fn main() {}
