#![allow(unused_variables)]

use axum::extract::{Extension, Json, State};
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Error, idempotent};

#[derive(Clone)]
struct Shop;

struct User;

// The competitor who sends the key and the order of another user reads that user's answer.
#[idempotent(op = "orders.create", key = idempotency_key, on_error = release)]
async fn alone(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    idempotency_key: IdempotencyKey,
    Json(order): Json<String>,
) -> Result<Reply<String>, Error> {
    let _ = (shop, user);
    Ok(Reply::created(order))
}

#[idempotent(key = ("order", key.0), on_error = release)]
async fn in_a_tuple(key: IdempotencyKey) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(1))
}

#[idempotent(key = key.as_str(), on_error = release)]
async fn by_its_text(key: idem_runtime::http::IdempotencyKey) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(1))
}

#[idempotent(key = "{order}-{key}", on_error = release)]
async fn in_a_format_string(order: u32, IdempotencyKey(key): IdempotencyKey) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(order))
}

#[idempotent(key = format!("{key}-{}", order), on_error = release)]
async fn formatted(order: u32, IdempotencyKey(key): IdempotencyKey) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(order))
}

#[idempotent(key = key.map(|key| key.0), on_error = release)]
async fn optional(#[idem(skip)] key: Option<IdempotencyKey>) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(1))
}

#[idempotent(key = key, on_error = release)]
async fn of_a_layer(Extension(key): Extension<IdempotencyKey>) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(1))
}

#[idempotent(on_error = release)]
async fn in_the_fingerprint(IdempotencyKey(key): IdempotencyKey, order: u32) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(order))
}

#[idempotent(fingerprint(order, key.0), on_error = release)]
async fn listed(key: IdempotencyKey, order: u32) -> Result<Reply<u32>, Error> {
    Ok(Reply::ok(order))
}

fn main() {}
