use idem_runtime::{Error, idempotent};

#[idempotent(key = order)]
async fn pay(order: u64) -> Result<&'static str, Error> {
    let _ = order;
    Ok("paid")
}

fn main() {}
