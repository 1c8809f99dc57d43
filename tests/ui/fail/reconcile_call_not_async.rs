use idem_runtime::{Error, Reconciled, idempotent};

fn find(order: &u64) -> Reconciled<u64> {
    Reconciled::Landed(*order)
}

#[idempotent(key = order, on_error = release, reconcile = find(&order))]
async fn pay(order: u64, note: &str) -> Result<u64, Error> {
    let _ = note;
    Ok(order)
}

fn main() {}
