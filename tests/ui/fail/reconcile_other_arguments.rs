use idem_runtime::{Context, Error, Reconciled, idempotent};

async fn find(order: &String, note: &str, _: &Context) -> Reconciled<u64> {
    let _ = (order, note);
    Reconciled::NotLanded
}

#[idempotent(key = order, on_error = release, reconcile = find)]
async fn pay(order: u64, note: &str) -> Result<u64, Error> {
    let _ = note;
    Ok(order)
}

fn main() {}
