use idem_runtime::{Error, idempotent};

#[derive(serde::Serialize, serde::Deserialize)]
struct PayError;

impl From<Error> for PayError {
    fn from(_: Error) -> Self {
        Self
    }
}

#[idempotent(key = order, on_error = keep, count_errors = true)]
async fn pay(order: u64) -> Result<u64, PayError> {
    if order == 0 { Err(PayError) } else { Ok(order) }
}

fn main() {}
