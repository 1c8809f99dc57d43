#![deny(warnings)]

use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release)]
pub async fn pay(order: u64, #[idem(skip)] note: &str) -> Result<u64, Error> {
    let unused = 1;
    Ok(order)
}

fn main() {}
