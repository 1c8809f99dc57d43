//! Qualifiers that are nobody's business but rustc's.

#![allow(
    clippy::missing_safety_doc,
    reason = "there is nothing to be safe from"
)]

use idem_runtime::on_error::Release;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{CallBuilder, Context, Engine, Error, Reconciled, admin::Entry, idempotent};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

#[idempotent(key = order, on_error = release)]
pub async unsafe fn not_safe(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = release)]
#[allow(improper_ctypes_definitions)]
pub async extern "C" fn foreign(order: u64) -> Result<u64, Error> {
    Ok(order)
}

// Written by hand, not by `#[async_trait]`.
#[idempotent(key = order, on_error = release)]
pub fn boxed<'a>(
    order: &'a str,
) -> Pin<Box<dyn Future<Output = Result<usize, Error>> + Send + 'a>> {
    Box::pin(async move { Ok(order.len()) })
}

// Its future borrows nothing, so it may run in a task of its own.
#[idempotent(key = order, on_error = release, on_cancel = finish, reconcile = find)]
pub fn finished(order: String) -> Pin<Box<dyn Future<Output = Result<usize, Error>> + Send>> {
    Box::pin(async move { Ok(order.len()) })
}

async fn find(order: &str, _: &Context) -> Reconciled<usize> {
    Reconciled::Landed(order.len())
}

#[idempotent(op = "not_safe", key = order, on_error = release, entry = not_safe_entry)]
pub async unsafe fn not_safe_and_found(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(op = "boxed", key = order, on_error = release, entry = boxed_entry)]
pub fn boxed_and_found<'a>(
    order: &'a str,
) -> Pin<Box<dyn Future<Output = Result<usize, Error>> + Send + 'a>> {
    Box::pin(async move { Ok(order.len()) })
}

// What the trait declares, the implementation has.
trait Found {
    async fn pay(&self, order: u64) -> Result<u64, Error>;
    async fn pay_entry(&self, order: u64) -> Result<Option<Entry>, Error>;
}

#[async_trait::async_trait]
trait FoundBehindDyn: Send + Sync {
    async fn pay(&self, order: u64, note: &str) -> Result<u64, Error>;
    async fn pay_entry(&self, order: u64, note: &str) -> Result<Option<Entry>, Error>;

    // Of a default method it is one, too.
    #[idempotent(op = "refund", key = order, on_error = release, entry = refund_entry)]
    async fn refund(&self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

impl Found for Bank {
    #[idempotent(op = "pay", key = order, on_error = release, entry = pay_entry)]
    async fn pay(&self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

#[async_trait::async_trait]
impl FoundBehindDyn for Bank {
    #[idempotent(op = "pay", key = order, on_error = release, entry = pay_entry)]
    async fn pay(&self, order: u64, note: &str) -> Result<u64, Error> {
        Ok(order + note.len() as u64)
    }
}

// A call whose settings are given somewhere else.
fn payment(engine: &Engine, order: u64) -> CallBuilder {
    engine.operation("payments.pay").key(&order)
}

fn lenient(engine: &Engine, order: u64) -> CallBuilder<Release> {
    payment(engine, order).on_error(idem_runtime::on_error::Release)
}

#[async_trait::async_trait]
trait Shared: Send + Sync + 'static {
    #[idempotent(op = "shared", key = order, on_error = release, on_cancel = finish)]
    async fn by_default(self: Arc<Self>, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

struct Bank;

impl Shared for Bank {}

fn main() {
    drop(Arc::new(Bank).by_default(1));
    drop((Found::pay(&Bank, 1), Found::pay_entry(&Bank, 1)));
    let bank: &dyn FoundBehindDyn = &Bank;
    drop((bank.pay(1, ""), bank.pay_entry(1, "")));
    drop((bank.refund(1), bank.refund_entry(1)));
    drop(lenient(&Engine::new(MemoryStore::new()), 1).entry());
}
