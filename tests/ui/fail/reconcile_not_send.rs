use idem_runtime::{Context, Error, Reconciled, idempotent};

async fn find(order: &u64, _: &Context) -> Reconciled<u64> {
    let order = std::rc::Rc::new(*order);
    tokio::task::yield_now().await;
    Reconciled::Landed(*order)
}

#[idempotent(key = order, on_error = release, reconcile = find)]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn spawn() {
    tokio::spawn(pay(1));
}

fn main() {}
