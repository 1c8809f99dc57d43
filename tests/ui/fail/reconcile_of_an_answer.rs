use idem_runtime::{Answer, Context, Error, Reconciled, idempotent};

async fn find(order: &u64, _: &Context) -> Reconciled<String> {
    Reconciled::Landed(order.to_string())
}

#[idempotent(key = order, on_error = release, reconcile = find)]
async fn pay(order: u64) -> Result<Answer<u64>, Error> {
    Ok(order.into())
}

fn main() {}
