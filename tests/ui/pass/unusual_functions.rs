//! Qualifiers that are nobody's business but rustc's.

#![allow(
    clippy::missing_safety_doc,
    reason = "there is nothing to be safe from"
)]

use idem_runtime::{Context, Error, Reconciled, idempotent};
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
}
