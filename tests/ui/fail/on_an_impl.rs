use idem_runtime::{Error, idempotent};

struct Shop;

#[idempotent(key = order)]
impl Shop {
    async fn pay(&self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

fn main() {}
