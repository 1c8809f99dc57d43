use idem_runtime::{Error, idempotent};

struct Connection;

#[idempotent(key = order, on_error = release)]
async fn pay(order: u64, connections: &'static [Connection]) -> Result<u64, Error> {
    let _ = connections;
    Ok(order)
}

fn main() {}
