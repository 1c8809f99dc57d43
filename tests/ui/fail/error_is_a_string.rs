use idem_runtime::idempotent;

#[idempotent(key = order)]
async fn pay(order: u64) -> Result<u64, String> {
    Ok(order)
}

fn main() {}
