use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;
use std::rc::Rc;

#[idempotent(key = order, on_error = release, tx = tx)]
async fn pay(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let held = Rc::new(tx);
    std::future::ready(()).await;
    drop(held);
    Ok(order)
}

fn send<T: Send>(_: T) {}

fn call(tx: &mut PgTransaction<'_>) {
    send(pay(1, tx));
}

fn main() {}
