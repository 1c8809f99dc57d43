use idem_runtime::idempotent;

#[idempotent(key = order)]
async fn pay(order: u64) {
    let _ = order;
}

fn main() {}
