use idem_runtime::idempotent;

#[idempotent(key = order)]
async fn pay(order: u64) -> u64 {
    order
}

fn main() {}
