use idem_runtime::{Error, idempotent};
use std::sync::Arc;

struct App;

impl App {
    #[idempotent(key = order, on_error = release, engine = self)]
    async fn pay(&self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }

    #[idempotent(key = order, on_error = release, engine = self)]
    async fn refund(self: Arc<Self>, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

fn main() {}
