use idem_runtime::{Error, idempotent};

#[idempotent(kye = order, ttl = "1 day", fingerprint(amount))]
async fn pay(order: u64, #[idem(skipp)] note: &str) -> Result<&str, Error> {
    let _ = (order, note);
    Ok("")
}

fn caller() {
    // The function stands, so a call of it is no mistake.
    drop(pay(1, ""));
}

fn main() {}
