#![allow(unused)]

use idem_runtime::{Error, idempotent};

#[idempotent(key = order, scope = "tenant")]
async fn constant(order: u64, tenant: &str) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, scope = public, on_error = release)]
async fn public_and_an_argument(order: u64, public: bool) -> Result<u64, Error> { Ok(order) }

// The argument, as the error says.
#[idempotent(key = order, scope = &public, on_error = release)]
async fn the_argument(order: u64, public: bool) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, scope = "public", on_error = release)]
async fn quoted(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, scope = none, on_error = release)]
async fn by_analogy(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, scope = Public, on_error = release)]
async fn as_a_variant(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, scope = String::from("{tenant}"), on_error = release)]
async fn text_in_a_call(order: u64, tenant: &str) -> Result<u64, Error> { Ok(order) }

fn main() {}
