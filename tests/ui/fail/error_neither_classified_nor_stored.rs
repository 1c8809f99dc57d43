use idem_runtime::{Error, idempotent};

struct PayError;

impl From<Error> for PayError {
    fn from(_: Error) -> Self {
        Self
    }
}

#[idempotent(key = order)]
async fn pay(order: u64) -> Result<u64, PayError> {
    if order == 0 { Err(PayError) } else { Ok(order) }
}

fn main() {}
