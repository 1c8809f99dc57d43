use idem_runtime::{Error, idempotent};

struct Bank;

impl Bank {
    #[idempotent(key = order, on_error = release, tx = self)]
    async fn pay(&mut self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

fn main() {}
