#![allow(unused_variables)]

use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Error, idempotent};

#[idempotent(scope = key.as_str(), key = order, on_error = release)]
async fn by_its_text(key: IdempotencyKey, order: u32) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(order))
}

#[idempotent(scope = "client-{key}", key = key, on_error = release)]
async fn in_a_format_string(IdempotencyKey(key): IdempotencyKey) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(1))
}

#[idempotent(scope = ("shop", &key), key = order, on_error = release)]
async fn in_a_tuple(key: IdempotencyKey, order: u32) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(order))
}

fn main() {}
