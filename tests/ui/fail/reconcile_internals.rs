use idem_runtime::{Context, Error, Reconciled, idempotent};

async fn find(_: &u64, _: &Context) -> Reconciled<u64> {
    Reconciled::NotLanded
}

// The hook of a path is given the context; a call asks for it.
#[idempotent(key = order, on_error = release, reconcile = find(&order, &cx))]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
