//! Keys that do not distinguish calls, and their format strings.

#![allow(unused)]

use idem_runtime::{Error, idempotent};

const TENANT: &str = "eu";

struct Shop;

fn today() -> u32 { 7 }

#[idempotent(key = "payment")]
async fn constant(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = ("payment", 1))]
async fn constant_tuple(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = oder_id)]
async fn misspelt(tenant: u32, order_id: u64) -> Result<u64, Error> { Ok(order_id + u64::from(tenant)) }

#[idempotent(key = ("eu", format!("{order_ids}")))]
async fn misspelt_in_a_format_string(order_id: u64) -> Result<u64, Error> { Ok(order_id) }

#[idempotent(key = order, fingerprint(amuont))]
async fn misspelt_in_the_fingerprint(order: u64, amount: u64) -> Result<u64, Error> { Ok(order + amount) }

#[idempotent(key = TENANT.to_owned())]
async fn names_no_argument(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = today())]
async fn no_arguments() -> Result<u32, Error> { Ok(today()) }

#[async_trait::async_trait]
trait Pay {
    async fn hidden(&self, order: (u64, u64)) -> Result<u64, Error>;
}

#[async_trait::async_trait]
impl Pay for Shop {
    #[idempotent(key = order, fingerprint(amount))]
    async fn hidden(&self, (order, amount): (u64, u64)) -> Result<u64, Error> { Ok(order + amount) }
}

#[idempotent(key = "{}-{order}")]
async fn placeholder_empty(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = "{order.id}")]
async fn placeholder_field(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = "{order}".to_owned(), fingerprint = none)]
async fn text_of_a_method(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = (tenant, &"{order}"), fingerprint = none)]
async fn text_by_reference(tenant: u64, order: u64) -> Result<u64, Error> { Ok(tenant + order) }

#[idempotent(key = "order-{order}}")]
async fn placeholder_not_opened(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = "order-{order")]
async fn placeholder_open(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = idem_runtime::token::token(form, user), on_error = release)]
async fn token_without_op(form: &str, user: u64) -> Result<u64, Error> { Ok(user) }

#[idempotent(key = (a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a))]
async fn tuple_too_long(a: u64) -> Result<u64, Error> { Ok(a) }

fn main() {}
