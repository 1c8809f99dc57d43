//! Names that rustc does not find. Those of the expansion are out of reach of the function.

use idem_runtime::{Context, Error, Reconciled, idempotent};

#[idempotent(key = order, on_error = release)]
async fn internals(order: u64) -> Result<u64, Error> {
    drop((inputs, call));
    Ok(order)
}

async fn find(_: &u64, _: &Context) -> Reconciled<u64> {
    Reconciled::NotLanded
}

// The hook of a path is given the context; a call asks for it.
#[idempotent(key = order, on_error = release, reconcile = find(&order, &cx))]
async fn internals_of_a_hook(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = release, reconcile = find_charge)]
async fn hook(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(on_error = release, key = "{order}-{tenant}")]
async fn placeholder(order: u64) -> Result<u64, Error> {
    Ok(order)
}

trait Pay {
    async fn pay(&self, order: u64) -> Result<u64, Error>;
}

struct Bank;

impl Pay for Bank {
    #[idempotent(op = "payments.pay", key = order, on_error = release, entry = pay_entry)]
    async fn pay(&self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

fn main() {}
