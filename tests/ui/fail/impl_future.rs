use idem_runtime::{Error, idempotent};

#[idempotent(key = order)]
fn pay(order: u64) -> impl Future<Output = Result<u64, Error>> {
    async move { Ok(order) }
}

fn main() {}
