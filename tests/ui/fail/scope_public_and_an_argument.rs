use idem_runtime::{Error, idempotent};

#[idempotent(key = order, scope = public, on_error = release)]
async fn pay(order: u64, public: bool) -> Result<u64, Error> {
    let _ = public;
    Ok(order)
}

// The argument, as the error says.
#[idempotent(key = order, scope = &public, on_error = release)]
async fn refund(order: u64, public: bool) -> Result<u64, Error> {
    let _ = public;
    Ok(order)
}

fn main() {}
