use idem_runtime::{Error, idempotent};
use std::rc::Rc;

#[idempotent(key = order, on_error = release, on_cancel = finish)]
async fn pay(order: u64, #[idem(skip)] note: Rc<u64>) -> Result<u64, Error> {
    Ok(order + *note)
}

fn main() {}
