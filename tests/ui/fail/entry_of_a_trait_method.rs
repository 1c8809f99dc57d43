use idem_runtime::{Error, idempotent};

trait Pay {
    async fn pay(&self, order: u64) -> Result<u64, Error>;
}

struct Bank;

impl Pay for Bank {
    #[idempotent(op = "payments.pay", key = order, on_error = release, entry = pay_entry)]
    async fn pay(&self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

fn main() {}
