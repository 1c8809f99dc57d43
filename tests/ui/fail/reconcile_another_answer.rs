use idem_runtime::{Context, Error, Reconciled, idempotent};

async fn find(order: &u64, _: &str, _: &Context) -> Reconciled<String> {
    Reconciled::Landed(order.to_string())
}

#[idempotent(key = order, on_error = release, reconcile = find)]
async fn pay(order: u64, note: &str) -> Result<u64, Error> {
    let _ = note;
    Ok(order)
}

fn main() {}
