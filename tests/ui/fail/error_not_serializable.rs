use idem_runtime::{Error, idempotent};

#[derive(idem_runtime::Classify)]
enum PayError {
    #[class(business)]
    Declined,
    #[class(system)]
    Refused,
}

impl From<Error> for PayError {
    fn from(_: Error) -> Self {
        Self::Refused
    }
}

#[idempotent(key = order)]
async fn pay(order: u64) -> Result<u64, PayError> {
    if order == 0 { Err(PayError::Declined) } else { Ok(order) }
}

fn main() {}
