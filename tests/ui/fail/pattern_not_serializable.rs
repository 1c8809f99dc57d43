use idem_runtime::{Error, idempotent};

struct Connection;

#[idempotent(key = order, on_error = release)]
async fn pay((order, connection): (u64, Connection)) -> Result<u64, Error> {
    let _ = connection;
    Ok(order)
}

fn main() {}
