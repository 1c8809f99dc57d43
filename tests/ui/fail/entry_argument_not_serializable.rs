use idem_runtime::{Error, idempotent};

pub struct Connection;

#[idempotent(op = "payments.pay", key = order, on_error = release, entry = pay_entry)]
pub async fn pay(order: u64, connection: Connection) -> Result<u64, Error> {
    let _ = connection;
    Ok(order)
}

fn main() {}
