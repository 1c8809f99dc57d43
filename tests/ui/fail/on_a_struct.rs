use idem_runtime::idempotent;

#[idempotent(key = order)]
struct Pay {
    order: u64,
}

fn main() {}
