use idem_runtime::{Error, idempotent};

struct Shop {
    id: u64,
}

impl Shop {
    #[idempotent(key = order, fingerprint(self.id, order))]
    async fn pay(&self, order: u64) -> Result<u64, Error> {
        Ok(self.id + order)
    }
}

fn main() {}
