//! Bodies and hooks whose futures are not `Send`.

use idem_runtime::{Context, Error, Reconciled, idempotent};
use sqlx::PgTransaction;
use std::rc::Rc;

#[idempotent(key = order, on_error = release)]
async fn body(order: u64) -> Result<u64, Error> {
    let order = Rc::new(order);
    tokio::task::yield_now().await;
    Ok(*order)
}

async fn find(order: &u64, _: &Context) -> Reconciled<u64> {
    let order = Rc::new(*order);
    tokio::task::yield_now().await;
    Reconciled::Landed(*order)
}

#[idempotent(key = order, on_error = release, reconcile = find)]
async fn hook(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = release, tx = tx)]
async fn transaction(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let held = Rc::new(tx);
    std::future::ready(()).await;
    drop(held);
    Ok(order)
}

fn send<T: Send>(_: T) {}

fn callers(tx: &mut PgTransaction<'_>) {
    tokio::spawn(body(1));
    tokio::spawn(hook(1));
    send(transaction(1, tx));
}

#[idempotent(key = order, on_error = release, on_cancel = finish)]
async fn finished(order: u64) -> Result<u64, Error> {
    let order = Rc::new(order);
    tokio::task::yield_now().await;
    Ok(*order)
}

#[idempotent(key = order, on_error = release, on_cancel = finish)]
async fn argument_of_finished(order: u64, #[idem(skip)] note: Rc<u64>) -> Result<u64, Error> {
    Ok(order + *note)
}

fn main() {}
