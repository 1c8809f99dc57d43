//! `on_cancel = finish`, beside borrows of the body.

#![allow(unused)]

use idem_runtime::{Error, idempotent};
use std::borrow::Cow;

struct Bank;

impl Bank {
    #[idempotent(key = order, on_error = release, on_cancel = finish)]
    async fn arguments(
        &self,
        order: u64,
        note: &str,
        name: Cow<'_, str>,
        who: &'static str,
        #[idem(skip)] judge: Box<dyn Fn(&str) -> bool>,
    ) -> Result<u64, Error> {
        Ok(order)
    }
}

trait Pay {
    async fn of_a_trait(&self, order: u64) -> Result<u64, Error>;
}

impl Pay for Bank {
    #[idempotent(op = "payments.pay", key = order, on_error = release, on_cancel = finish)]
    async fn of_a_trait(&self, order: u64) -> Result<u64, Error> { Ok(order) }
}

#[idempotent(op = "pay", key = order, on_error = release, on_cancel = finish)]
async fn generic_is_not_static<T: Send>(order: u64, #[idem(skip)] note: T) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "pay", key = order, on_cancel = finish)]
async fn generic_has_no_bound<T: serde::Serialize>(order: T) -> Result<u64, Error> { Ok(1) }

fn main() {}
