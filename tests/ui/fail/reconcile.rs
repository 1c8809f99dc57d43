#![allow(unused)]

use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release, reconcile = |order, cx| find(order))]
async fn closure(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, reconcile = find(&order).await)]
async fn awaited(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, reconcile = "find")]
async fn in_quotes(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, reconcile = find(&parse(order)?))]
async fn question_mark(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, reconcile = find)]
async fn under_cfg(order: u64, #[cfg(not(windows))] note: u8) -> Result<u64, Error> { Ok(order) }

fn main() {}
