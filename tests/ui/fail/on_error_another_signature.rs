use idem_runtime::{Error, idempotent};

use idem_runtime::Class;

#[derive(serde::Serialize, serde::Deserialize)]
struct PayError;

impl From<Error> for PayError {
    fn from(_: Error) -> Self {
        Self
    }
}

fn judge(_: PayError) -> Class {
    Class::System
}

#[idempotent(key = order, on_error = judge)]
async fn pay(order: u64) -> Result<u64, PayError> {
    if order == 0 { Err(PayError) } else { Ok(order) }
}

fn main() {}
