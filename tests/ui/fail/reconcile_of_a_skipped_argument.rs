use idem_runtime::{Context, Error, Reconciled, idempotent};

struct Bank;

async fn find(order: &u64, _: &Bank, _: &Context) -> Reconciled<u64> {
    Reconciled::Landed(*order)
}

#[idempotent(key = order, on_error = release, reconcile = find)]
async fn pay(order: u64, #[idem(skip)] bank: &Bank) -> Result<u64, Error> {
    let _ = bank;
    Ok(order)
}

fn main() {}
