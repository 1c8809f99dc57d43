use idem_runtime::{Error, idempotent};

struct Shop;

impl Shop {
    #[idempotent(key = order)]
    async fn pay(#[idem(skip)] &self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

fn main() {}
