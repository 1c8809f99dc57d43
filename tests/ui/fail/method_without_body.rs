use idem_runtime::{Error, idempotent};

trait Shop {
    #[idempotent(key = order)]
    async fn pay(&self, #[idem(skip)] note: &str, order: u64) -> Result<u64, Error>;
}

fn main() {}
