use std::sync::Arc;

use idem_runtime::{Error, idempotent};

#[idempotent(key = order)]
async fn name(order: u64) -> Result<Arc<str>, Error> {
    Ok(order.to_string().into())
}

fn main() {}
