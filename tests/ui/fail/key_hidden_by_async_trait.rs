use idem_runtime::{Error, idempotent};

struct Shop;

#[async_trait::async_trait]
trait Pay {
    async fn pay(&self, order: (u64, u64)) -> Result<u64, Error>;
}

#[async_trait::async_trait]
impl Pay for Shop {
    #[idempotent(key = order, fingerprint(amount))]
    async fn pay(&self, (order, amount): (u64, u64)) -> Result<u64, Error> {
        Ok(order + amount)
    }
}

fn main() {}
