use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release, on_cancel = finish)]
async fn pay(order: u64) -> Result<u64, Error> {
    let order = std::rc::Rc::new(order);
    tokio::task::yield_now().await;
    Ok(*order)
}

fn main() {}
