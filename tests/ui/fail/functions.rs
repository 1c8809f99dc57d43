//! Items that are no `async fn`, and values without a stored form.

#![allow(unused)]

use axum::response::IntoResponse;
use idem_runtime::http::IdempotencyKey;
use idem_runtime::{Error, idempotent};
use std::borrow::Cow;

struct Shop;

#[idempotent(key = order)]
fn not_async(order: u64) -> Result<u64, Error> { Ok(order) }

#[tokio::main]
#[idempotent(key = order)]
async fn async_taken_away(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order)]
fn impl_future(order: u64) -> impl Future<Output = Result<u64, Error>> { async move { Ok(order) } }

#[idempotent(key = order)]
struct Pay {
    order: u64,
}

#[idempotent(key = order)]
impl Shop {
    async fn pay(&self, order: u64) -> Result<u64, Error> { Ok(order) }
}

trait WithoutBody {
    #[idempotent(key = order)]
    async fn pay(&self, #[idem(skip)] note: &str, order: u64) -> Result<u64, Error>;
}

#[idempotent(key = order)]
#[idempotent(ttl = "24h")]
async fn attribute_twice(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order)]
async fn returns_nothing(order: u64) {}

#[idempotent(key = order)]
async fn returns_a_reference(order: &str) -> Result<&str, Error> { Ok(order) }

#[idempotent(key = order)]
async fn returns_a_lifetime<'a>(order: &'a str) -> Result<Cow<'a, str>, Error> { Ok(Cow::Borrowed(order)) }

#[idempotent(key = order)]
async fn returns_a_static(order: u64) -> Result<&'static str, Error> { Ok("paid") }

// It authenticates no client: all share one namespace.
#[idempotent(op = "orders.create", scope = public, key = key, on_error = release)]
async fn returns_a_response(IdempotencyKey(key): IdempotencyKey) -> impl IntoResponse { "created" }

#[idempotent(key = order)]
async fn error_is_a_string(order: u64) -> Result<u64, String> { Ok(order) }

#[idempotent(key = order, on_error = release)]
async fn released_error_is_a_string(order: u64) -> Result<u64, String> { Ok(order) }

fn main() {}
