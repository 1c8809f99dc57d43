//! `#[idem(skip)]`, in another form or place.

#![allow(unused)]

use idem_runtime::{Error, idempotent};

struct Shop;

#[idempotent(key = order)]
async fn unknown(order: u64, #[idem(ignore)] note: &str) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order)]
async fn without_parentheses(order: u64, #[idem] a: u64, #[idem = "skip"] b: u64) -> Result<u64, Error> { Ok(order + a + b) }

#[idempotent(key = order)]
async fn conditional(order: u64, #[cfg_attr(unix, idem(skip))] note: &str) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "a", key = order, on_error = release)]
async fn by_the_attribute(order: u64, #[idempotent(skip)] note: String) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order)]
#[idem(skip)]
async fn on_the_function(order: u64) -> Result<u64, Error> { Ok(order) }

impl Shop {
    #[idempotent(key = order)]
    async fn on_the_receiver(#[idem(skip)] &self, order: u64) -> Result<u64, Error> { Ok(order) }
}

fn main() {}
